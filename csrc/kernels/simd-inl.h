// Vector types, the feature map, rows in and out, and the transposition: what every kernel starts from.
#if defined(G2C_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_SIMD_INL_H_
#undef G2C_KERNELS_SIMD_INL_H_
#else
#define G2C_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/linear_attention.h"

// Loops over register arrays must vanish, or the arrays live in memory.
#ifndef G2C_UNROLL
#ifdef __clang__
#define G2C_UNROLL _Pragma("clang loop unroll(full)")
#else
#define G2C_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;

template <typename T>
inline constexpr size_t kLanes = hn::MaxLanes(Tag<T>());

// A register tile is kTileRows broadcasts by up to kTileVectors vectors of accumulators: enough of them to hide the latency of FMA (4 to 5 cycles times
// 2 to 4 units), few enough for the register file (16 vectors on AVX2, 32 on AVX-512 and NEON).
#if HWY_TARGET == HWY_AVX3
inline constexpr size_t kTileRows = 8;
inline constexpr size_t kTileVectors = 2;
#elif HWY_TARGET == HWY_AVX2
inline constexpr size_t kTileRows = 4;
inline constexpr size_t kTileVectors = 3;
#elif HWY_TARGET == HWY_NEON
inline constexpr size_t kTileRows = 4;
inline constexpr size_t kTileVectors = 4;
#else
inline constexpr size_t kTileRows = 4;
inline constexpr size_t kTileVectors = 2;
#endif

// Tokens in a chunk. Longer ones waste work above the diagonal, shorter ones load and store the state more often.
inline constexpr size_t kChunk = 32;

inline constexpr size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

// Rows and columns of scratch come in whole vectors and whole tiles.
template <typename T>
inline constexpr size_t kPad = kLanes<T> > kTileRows ? kLanes<T> : kTileRows;

// The distance between rows of `width` values. Rows a multiple of 512 bytes apart would share few sets of the first-level cache.
template <typename T>
size_t row_stride(size_t width) {
  const size_t padded = round_up(width, kPad<T>);
  return padded * sizeof(T) % 512 == 0 ? padded + kPad<T> : padded;
}

HWY_INLINE Vec<double> exp_of_negative(Vec<double> x) {
  constexpr Tag<double> d;
  HWY_ALIGN double lanes[kLanes<double>];
  hn::Store(x, d, lanes);
  for (double& lane : lanes) {
    lane = std::exp(lane);
  }
  return hn::Max(hn::Load(d, lanes), hn::Set(d, std::numeric_limits<double>::denorm_min()));
}

// exp(x) for x < 0 to 1 ulp, at least the smallest positive number; any value for x >= 0 and NaN. With n = round(x / ln 2) and r = x - n ln 2 in
// [-0.35, 0.35], exp(x) = 2^n p(r); p is a minimax polynomial of relative error 3e-9.
HWY_INLINE Vec<float> exp_of_negative(Vec<float> x) {
  constexpr Tag<float> d;
  // exp(-103.3) rounds to the smallest subnormal number.
  x = hn::Max(x, hn::Set(d, -103.3f));
  // Adding 1.5 * 2^23 leaves the rounded integer, plus 64, in the low bits of the mantissa.
  const auto magic = hn::Set(d, 0x1.8p23f + 64.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e400p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), r);
  auto p = hn::Set(d, 0x1.6a2256p-10f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.123b02p-7f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5558f8p-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.555490p-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.fffffcp-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return Vec<float>{_mm512_scalef_ps(p.raw, n.raw)};
#else
  // 2^n may be subnormal: scale by 2^(n + 64), which is not, and let the last product round.
  constexpr hn::RebindToSigned<Tag<float>> di;
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  return hn::Mul(hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent)), hn::Set(d, 0x1p-64f));
#endif
}

// The feature map kElu1.
template <class V>
HWY_INLINE V elu1(V x) {
  constexpr hn::DFromV<V> d;
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), exp_of_negative(x), hn::Add(x, hn::Set(d, 1)));
}

// Its slope out of its value: exp(x) below 0, 1 from 0 on; NaN stays NaN.
template <class V>
HWY_INLINE V elu1_slope(V feature) {
  const auto one = hn::Set(hn::DFromV<V>(), 1);
  return hn::IfThenElse(hn::Gt(feature, one), one, feature);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
// x and x' become (x0, x'0, x1, x'1) and (x2, x'2, x3, x'3) in each block of four, then the same with pairs: four vectors are transposed in each block.
template <class V>
HWY_INLINE void transpose_blocks(V& r0, V& r1, V& r2, V& r3) {
  constexpr Tag<float> d;
  constexpr Tag<double> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  r0 = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  r1 = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  r2 = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  r3 = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

// Four columns of rows 0, 4, 8, ... (one vector) of a row-major array.
HWY_INLINE Vec<float> gather_blocks(const float* from, size_t stride) {
  constexpr Tag<float> d;
#if HWY_TARGET == HWY_AVX3
  constexpr hn::Half<Tag<float>> half;
  constexpr hn::Half<decltype(half)> quarter;
  const auto low = hn::Combine(half, hn::LoadU(quarter, from + 4 * stride), hn::LoadU(quarter, from));
  const auto high = hn::Combine(half, hn::LoadU(quarter, from + 12 * stride), hn::LoadU(quarter, from + 8 * stride));
  return hn::Combine(d, high, low);
#elif HWY_TARGET == HWY_AVX2
  return hn::OddEvenBlocks(hn::LoadDup128(d, from + 4 * stride), hn::LoadDup128(d, from));
#else
  (void)stride;
  return hn::LoadU(d, from);
#endif
}
#endif

// to[c][r] = from[r][c] for whole vectors of rows and whole groups of four columns.
template <typename T>
void transpose(const T* HWY_RESTRICT from, size_t from_stride, size_t rows, size_t columns, T* HWY_RESTRICT to, size_t to_stride) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
  if constexpr (std::is_same_v<T, float>) {
    constexpr Tag<float> d;
    for (size_t r = 0; r < rows; r += kLanes<float>) {
      for (size_t c = 0; c < columns; c += 4) {
        const float* block = from + r * from_stride + c;
        auto r0 = gather_blocks(block, from_stride);
        auto r1 = gather_blocks(block + from_stride, from_stride);
        auto r2 = gather_blocks(block + 2 * from_stride, from_stride);
        auto r3 = gather_blocks(block + 3 * from_stride, from_stride);
        transpose_blocks(r0, r1, r2, r3);
        float* out = to + c * to_stride + r;
        hn::StoreU(r0, d, out);
        hn::StoreU(r1, d, out + to_stride);
        hn::StoreU(r2, d, out + 2 * to_stride);
        hn::StoreU(r3, d, out + 3 * to_stride);
      }
    }
    return;
  }
#endif
  for (size_t c = 0; c < columns; ++c) {
    for (size_t r = 0; r < rows; ++r) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

// Whether `count` values (whole vectors) are all finite: x * 0 is NaN otherwise.
template <typename T>
bool all_finite(const T* values, size_t rows, size_t columns, size_t stride) {
  constexpr Tag<T> d;
  constexpr size_t kSums = 4;
  const auto zero = hn::Zero(d);
  Vec<T> sums[kSums] = {zero, zero, zero, zero};
  for (size_t c = 0; c < columns; c += kLanes<T>) {
    size_t r = 0;
    for (; r + kSums <= rows; r += kSums) {
      G2C_UNROLL for (size_t s = 0; s < kSums; ++s) { sums[s] = hn::MulAdd(hn::Load(d, values + (r + s) * stride + c), zero, sums[s]); }
    }
    for (; r < rows; ++r) {
      sums[0] = hn::MulAdd(hn::Load(d, values + r * stride + c), zero, sums[0]);
    }
  }
  const auto sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::AllTrue(d, hn::Eq(sum, sum));
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
