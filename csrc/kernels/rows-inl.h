// Rows of the caller's arrays: any element type and strides, turned into packed rows of accumulators and back.
#if defined(G2C_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_ROWS_INL_H_
#undef G2C_KERNELS_ROWS_INL_H_
#else
#define G2C_KERNELS_ROWS_INL_H_
#endif

#include <algorithm>
#include <bit>

#include "kernels/simd-inl.h"
#include "kernels/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

HWY_INLINE float widen(float x) { return x; }
HWY_INLINE double widen(double x) { return x; }
HWY_INLINE float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
HWY_INLINE float widen(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fff) << 13;
  constexpr uint32_t kInfinity = 0x7c00u << 13;
  if (magnitude >= kInfinity) {
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude - kInfinity));
  }
  // The exponent's bias grows from 15 to 127; the product also makes subnormal numbers right.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f));
}

HWY_INLINE void narrow(float x, float* to) { *to = x; }
HWY_INLINE void narrow(double x, double* to) { *to = x; }
HWY_INLINE void narrow(float x, BFloat16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  to->bits = static_cast<uint16_t>(x == x ? rounded : 0x7fc0u);
}
HWY_INLINE void narrow(float x, Float16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = 0;
  if (magnitude >= 0x7f800000u) {
    half = magnitude == 0x7f800000u ? 0x7c00 : 0x7e00;
  } else if (magnitude >= 0x47800000u) {  // 65536 and more
    half = 0x7c00;
  } else if (magnitude < 0x38800000u) {  // less than 2^-14: the addition rounds to a multiple of 2^-24
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {  // may round up to infinity, as it should
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | half);
}

// What happens to values as they are loaded.
struct AsTheyAre {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
struct AsElu1Features {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return elu1(x);
  }
};

// A row of `width` elements, `step` apart, converted and mapped; the rest of its last vector becomes zero.
template <typename T, typename Element, class Map>
HWY_INLINE void load_row(const Element* from, int64_t step, size_t width, const Map& map, T* to) {
  constexpr Tag<T> d;
  size_t c = 0;
  if constexpr (std::is_same_v<Element, T>) {
    for (; step == 1 && c + kLanes<T> <= width; c += kLanes<T>) {
      hn::Store(map(hn::LoadU(d, from + c)), d, to + c);
    }
  }
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Element, Float16>) {
    constexpr hn::Rebind<hwy::float16_t, Tag<T>> half;
    for (; step == 1 && c + kLanes<T> <= width; c += kLanes<T>) {
      hn::Store(map(hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from + c)))), d, to + c);
    }
  }
#endif
  if (c == width) {
    return;
  }
  const size_t first = c;
  if (step == 1) {
    for (; c < width; ++c) {
      to[c] = widen(from[c]);
    }
  } else {
    for (; c < width; ++c) {
      to[c] = widen(from[static_cast<int64_t>(c) * step]);
    }
  }
  for (c = first; c < width; c += kLanes<T>) {
    const auto inside = hn::FirstN(d, width - c < kLanes<T> ? width - c : kLanes<T>);
    hn::Store(hn::IfThenElseZero(inside, map(hn::Load(d, to + c))), d, to + c);
  }
}

template <typename T, typename Element>
HWY_INLINE void store_row(const T* from, size_t width, Element* to, int64_t step) {
  constexpr Tag<T> d;
  size_t c = 0;
  if constexpr (std::is_same_v<Element, T>) {
    for (; step == 1 && c + kLanes<T> <= width; c += kLanes<T>) {
      hn::StoreU(hn::Load(d, from + c), d, to + c);
    }
  }
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Element, Float16>) {
    constexpr hn::Rebind<hwy::float16_t, Tag<T>> half;
    for (; step == 1 && c + kLanes<T> <= width; c += kLanes<T>) {
      hn::StoreU(hn::DemoteTo(half, hn::Load(d, from + c)), half, reinterpret_cast<hwy::float16_t*>(to + c));
    }
  }
#endif
  if (step == 1) {
    for (; c < width; ++c) {
      narrow(from[c], to + c);
    }
  } else {
    for (; c < width; ++c) {
      narrow(from[c], to + static_cast<int64_t>(c) * step);
    }
  }
}

// Calls body.run<Element>() with the type behind `type`; for double accumulators that is double.
template <typename T, typename Body>
HWY_INLINE void with_element_type(ElementType type, const Body& body) {
  if constexpr (std::is_same_v<T, double>) {
    body.template run<double>();
  } else if (type == ElementType::kBFloat16) {
    body.template run<BFloat16>();
  } else if (type == ElementType::kFloat16) {
    body.template run<Float16>();
  } else {
    body.template run<float>();
  }
}

// The rows of n tokens of `heads` neighbouring heads, as accumulators: each head's lie together, whole tokens are read and written at a time. Going head by
// head through arrays that hold all heads of a token together would use a piece of each page and defeat the prefetcher.
template <typename T>
class Stage {
 public:
  // `slots` tokens, the width and heads of `view` from `first_head` of row `batch` on.
  template <typename Data>
  Stage(Layout& layout, ElementType type, const View<Data>& view, int64_t batch, int64_t first_head, size_t heads, size_t width, size_t slots)
      : type_(type),
        data_(view.data),
        offset_(batch * view.batch + first_head * view.head),
        time_(view.time),
        head_(view.head),
        step_(view.dim),
        heads_(heads),
        width_(width),
        stride_(row_stride<T>(width)),
        slots_(slots),
        rows_(layout.take<T>(heads * slots * stride_)) {}

  // Of head `first_head + i`: `slots` rows, `stride` apart.
  T* head(size_t i) const { return rows_ + i * slots_ * stride_; }
  size_t stride() const { return stride_; }

  // The tokens' rows; the slots after them, up to a whole tile, become zero.
  HWY_NOINLINE void load(const int64_t* tokens, size_t n) const { with_element_type<T>(type_, Loader<AsTheyAre>{*this, tokens, n, {}}); }

  // f of them.
  HWY_NOINLINE void load_features(FeatureMap map, const int64_t* tokens, size_t n) const {
    if (map == FeatureMap::kIdentity) {
      load(tokens, n);
    } else {
      with_element_type<T>(type_, Loader<AsElu1Features>{*this, tokens, n, {}});
    }
  }

  HWY_NOINLINE void store(const int64_t* tokens, size_t n) const { with_element_type<T>(type_, Storer{*this, tokens, n}); }

  // Zeros to the listed tokens themselves.
  void clear(const TokenList& tokens) const { with_element_type<T>(type_, Clearer{*this, tokens}); }

 private:
  template <class Map>
  struct Loader {
    const Stage& stage;
    const int64_t* tokens;
    size_t n;
    Map map;

    template <typename Element>
    HWY_INLINE void run() const {
      const Stage& s = stage;
      for (size_t i = 0; i < n; ++i) {
        const Element* row = static_cast<const Element*>(s.data_) + s.offset_ + tokens[i] * s.time_;
        for (size_t h = 0; h < s.heads_; ++h, row += s.head_) {
          load_row(row, s.step_, s.width_, map, s.head(h) + i * s.stride_);
        }
      }
      const size_t padded = std::min(s.slots_, round_up(n, kPad<T>));
      for (size_t h = 0; h < s.heads_ && n < padded; ++h) {
        std::memset(s.head(h) + n * s.stride_, 0, (padded - n) * s.stride_ * sizeof(T));
      }
    }
  };

  struct Storer {
    const Stage& stage;
    const int64_t* tokens;
    size_t n;

    template <typename Element>
    HWY_INLINE void run() const {
      const Stage& s = stage;
      for (size_t i = 0; i < n; ++i) {
        Element* row = s.writable<Element>() + tokens[i] * s.time_;
        for (size_t h = 0; h < s.heads_; ++h, row += s.head_) {
          store_row(s.head(h) + i * s.stride_, s.width_, row, s.step_);
        }
      }
    }
  };

  struct Clearer {
    const Stage& stage;
    const TokenList& tokens;

    template <typename Element>
    HWY_INLINE void run() const {
      const Stage& s = stage;
      for (int64_t i = 0; i < tokens.count; ++i) {
        Element* row = s.writable<Element>() + tokens.listed[i] * s.time_;
        for (size_t h = 0; h < s.heads_; ++h, row += s.head_) {
          for (size_t c = 0; c < s.width_; ++c) {
            row[static_cast<int64_t>(c) * s.step_] = Element{};
          }
        }
      }
    }
  };

  // Only of stages that were made from an Output.
  template <typename Element>
  Element* writable() const {
    return static_cast<Element*>(const_cast<void*>(data_)) + offset_;
  }

  ElementType type_;
  const void* data_;
  int64_t offset_, time_, head_, step_;
  size_t heads_, width_, stride_, slots_;
  T* rows_;
};

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
