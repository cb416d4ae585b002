// What a chunk is made of: decay tables, packed operands, decayed scores, and the running state.
#if defined(G2C_KERNELS_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_CHUNK_INL_H_
#undef G2C_KERNELS_CHUNK_INL_H_
#else
#define G2C_KERNELS_CHUNK_INL_H_
#endif

#include <algorithm>

#include "kernels/rows-inl.h"
#include "kernels/tile-inl.h"
#include "kernels/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

// Powers of one head's decay g and their derivatives, by multiplication and 0 for negative exponents, so that g = 0 needs no care (0^0 = 1).
// Powers too small to be normal numbers count as 0: arithmetic on subnormal ones is very slow, and they cannot be seen beside g^0 = 1.
template <typename T>
class DecayTables {
 public:
  DecayTables(const Problem& problem, int64_t head)
      : gain_(problem.decay == nullptr ? 1.0 : static_cast<double>(static_cast<const T*>(problem.decay)[head])) {
    const double g = gain_;
    double power = 1;
    double derivative = 0;  // m g^(m-1)
    for (size_t m = 0; m <= kChunk; ++m) {
      up_[kChunk + m] = normal_or_zero(power);
      up_derivative_[kChunk + m] = normal_or_zero(derivative);
      derivative = power + g * derivative;
      power *= g;
    }
    for (size_t m = 0; m < kChunk; ++m) {
      down_[m] = up_[2 * kChunk - 1 - m];
      down_derivative_[m] = up_derivative_[2 * kChunk - 1 - m];
    }
  }

  bool is_one() const { return gain_ == 1; }
  // g^m and m g^(m-1) for m from -kChunk to kChunk.
  const T* up(ptrdiff_t m) const { return up_ + static_cast<ptrdiff_t>(kChunk) + m; }
  const T* up_derivative(ptrdiff_t m) const { return up_derivative_ + static_cast<ptrdiff_t>(kChunk) + m; }
  // Pointers to falling powers: g^m, g^(m-1), ..., 1, 0, 0, ... for m < kChunk.
  const T* down(size_t m) const { return down_ + (kChunk - 1 - m); }
  const T* down_derivative(size_t m) const { return down_derivative_ + (kChunk - 1 - m); }
  // g^m for any m >= 0.
  T power(int64_t m) const { return normal_or_zero(std::pow(gain_, static_cast<double>(m))); }

 private:
  static T normal_or_zero(double x) { return x < static_cast<double>(std::numeric_limits<T>::min()) ? T{0} : static_cast<T>(x); }

  double gain_;
  T up_[2 * kChunk + 1 + kPad<T>] = {};
  T up_derivative_[2 * kChunk + 1 + kPad<T>] = {};
  T down_[2 * kChunk + kPad<T>] = {};
  T down_derivative_[2 * kChunk + kPad<T>] = {};
};

// Up to kChunk tokens that a state passes through together.
struct Chunk {
  size_t n = 0;
  int64_t tokens[kChunk];

  Chunk(const TokenList& list, int64_t index) {
    const int64_t first = index * static_cast<int64_t>(kChunk);
    n = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(kChunk), list.count - first));
    list.copy(first, n, tokens);
  }

  static int64_t count(const TokenList& list) { return (list.count + static_cast<int64_t>(kChunk) - 1) / static_cast<int64_t>(kChunk); }
};

// A state of a head: matrix (rows, columns) and a vector beside it.
template <typename T>
struct State {
  T* matrix;
  T* vector;
  size_t rows;
  size_t columns;
  size_t stride;

  State(Layout& layout, size_t rows, size_t columns, size_t vector_size) : rows(rows), columns(columns), stride(row_stride<T>(columns)) {
    matrix_size_ = round_up(rows, kPad<T>) * stride;
    size_ = matrix_size_ + round_up(vector_size, kPad<T>);
    move_to(layout.take<T>(size_));
  }

  // Of matrix and vector, which lie together.
  size_t size() const { return size_; }
  void clear() { std::fill_n(matrix, size_, T{0}); }
  // Takes `size()` accumulators there as its own, with the values that they have.
  void move_to(T* memory) {
    matrix = memory;
    vector = memory == nullptr ? nullptr : memory + matrix_size_;
  }

 private:
  size_t matrix_size_;
  size_t size_;
};

// The index-th of the caller's arrays of `size` accumulators; null stays null.
template <typename T>
const T* at_index(const void* data, size_t index, size_t size) {
  return data == nullptr ? nullptr : static_cast<const T*>(data) + index * size;
}
template <typename T>
T* at_index(void* data, size_t index, size_t size) {
  return data == nullptr ? nullptr : static_cast<T*>(data) + index * size;
}

// to[r][c] = from[r][c] of dense (rows, columns), or from[c][r] of dense (columns, rows). Null: zeros.
template <typename T>
void load_matrix(State<T>& state, const T* from, bool transposed) {
  for (size_t r = 0; r < state.rows; ++r) {
    for (size_t c = 0; c < state.columns; ++c) {
      state.matrix[r * state.stride + c] = from == nullptr ? T{0} : from[transposed ? c * state.rows + r : r * state.columns + c];
    }
  }
}

template <typename T>
void store_matrix(const State<T>& state, T* to, bool transposed) {
  for (size_t r = 0; r < state.rows; ++r) {
    for (size_t c = 0; c < state.columns; ++c) {
      to[transposed ? c * state.rows + r : r * state.columns + c] = state.matrix[r * state.stride + c];
    }
  }
}

template <typename T>
void load_vector(T* to, const T* from, size_t size) {
  for (size_t c = 0; c < size; ++c) {
    to[c] = from == nullptr ? T{0} : from[c];
  }
}

template <typename T>
HWY_NOINLINE void scale_rows(T* rows, size_t n, size_t columns, size_t stride, const T* factors) {
  constexpr Tag<T> d;
  for (size_t i = 0; i < n; ++i) {
    const auto factor = hn::Set(d, factors[i]);
    for (size_t c = 0; c < columns; c += kLanes<T>) {
      hn::Store(hn::Mul(factor, hn::Load(d, rows + i * stride + c)), d, rows + i * stride + c);
    }
  }
}

// Scores of keys (rows j) by queries (columns i): times g^(i-j), zero where i < j. `sums`, if given, gets the sum of each column.
template <typename T>
HWY_NOINLINE void decay_scores(T* scores, size_t n, const DecayTables<T>& decay, T* sums) {
  constexpr Tag<T> d;
  for (size_t i = 0; i < n; i += kLanes<T>) {
    auto sum = hn::Zero(d);
    const size_t end = std::min(n, round_up(i + 1, kPad<T>));  // of the rows in tiles that touch the triangle
    for (size_t j = 0; j < end; ++j) {
      const ptrdiff_t distance = static_cast<ptrdiff_t>(i) - static_cast<ptrdiff_t>(j);
      auto score = hn::Mul(hn::Load(d, scores + j * kChunk + i), hn::LoadU(d, decay.up(distance)));
      if (distance < 0) {
        score = hn::IfThenElseZero(hn::Not(hn::FirstN(d, static_cast<size_t>(-distance))), score);
      }
      hn::Store(score, d, scores + j * kChunk + i);
      sum = hn::Add(sum, score);
    }
    if (sums != nullptr) {
      hn::Store(sum, d, sums + i);
    }
  }
}

// Scores of queries (rows t) by keys (columns i), both of f(q) f(k) and of its gradient: times g^(t-i), zero where i > t. With kDecayGradient,
// returns the sum of (t-i) g^(t-i-1) scores gradients over the pairs.
template <typename T, bool kDecayGradient>
HWY_INLINE Vec<T> decay_score_pairs(T* scores, T* gradients, size_t n, const DecayTables<T>& decay) {
  constexpr Tag<T> d;
  auto sum = hn::Zero(d);
  for (size_t t = 0; t < n; ++t) {
    const size_t end = round_up(t / kTileRows * kTileRows + kTileRows, kLanes<T>);
    for (size_t i = 0; i < end; i += kLanes<T>) {
      T* const score_at = scores + t * kChunk + i;
      T* const gradient_at = gradients + t * kChunk + i;
      auto score = hn::Load(d, score_at);
      auto gradient = hn::Load(d, gradient_at);
      if (i + kLanes<T> > t + 1) {
        const auto reached = hn::FirstN(d, i > t ? 0 : t + 1 - i);
        score = hn::IfThenElseZero(reached, score);
        gradient = hn::IfThenElseZero(reached, gradient);
      }
      if constexpr (kDecayGradient) {
        sum = hn::MulAdd(hn::Mul(score, gradient), hn::LoadU(d, decay.down_derivative(t) + i), sum);
      }
      const auto power = hn::LoadU(d, decay.down(t) + i);
      hn::Store(hn::Mul(score, power), d, score_at);
      hn::Store(hn::Mul(gradient, power), d, gradient_at);
    }
  }
  return sum;
}

// The sum of products of two arrays of (rows, columns): of a few rows in lanes, of those in double.
template <typename T>
double dot(const T* a, const T* b, size_t rows, size_t columns, size_t stride) {
  constexpr Tag<T> d;
  constexpr size_t kRows = 8;
  double total = 0;
  for (size_t first = 0; first < rows; first += kRows) {
    auto even = hn::Zero(d);
    auto odd = hn::Zero(d);
    for (size_t r = first; r < std::min(rows, first + kRows); ++r) {
      for (size_t c = 0; c < columns; c += kLanes<T>) {
        auto& sum = c / kLanes<T> % 2 == 0 ? even : odd;
        sum = hn::MulAdd(hn::Load(d, a + r * stride + c), hn::Load(d, b + r * stride + c), sum);
      }
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))));
  }
  return total;
}

// That of two states laid out alike, the other one given by its memory.
template <typename T>
double dot(const State<T>& state, const T* other) {
  const size_t vector_at = static_cast<size_t>(state.vector - state.matrix);
  return dot(state.matrix, other, state.rows, state.columns, state.stride) + dot(state.vector, other + vector_at, 1, state.columns, 0);
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
