// The matrix products: register tiles of kTileRows rows by a few vectors of columns.
#if defined(G2C_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_TILE_INL_H_
#undef G2C_KERNELS_TILE_INL_H_
#else
#define G2C_KERNELS_TILE_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

template <typename T, size_t Rows, size_t Vectors>
using Accumulators = Vec<T>[Rows][Vectors];

template <typename T, size_t Rows, size_t Vectors>
HWY_INLINE void clear(Accumulators<T, Rows, Vectors>& acc) {
  G2C_UNROLL for (size_t r = 0; r < Rows; ++r) {
    G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) { acc[r][v] = hn::Zero(Tag<T>()); }
  }
}

// acc[r][v] += sum over k < count of a[k * a_step + r * a_row] * b[k * b_stride + v], the first `Used` vectors of each row.
template <typename T, size_t Used, size_t Rows, size_t Vectors>
HWY_INLINE void accumulate(Accumulators<T, Rows, Vectors>& acc, const T* HWY_RESTRICT a, size_t a_step, size_t a_row, const T* HWY_RESTRICT b,
                           size_t b_stride, size_t count) {
  constexpr Tag<T> d;
  for (size_t k = 0; k < count; ++k) {
    Vec<T> columns[Used];
    G2C_UNROLL for (size_t v = 0; v < Used; ++v) { columns[v] = hn::Load(d, b + v * kLanes<T>); }
    G2C_UNROLL for (size_t r = 0; r < Rows; ++r) {
      const auto factor = hn::Set(d, a[r * a_row]);
      G2C_UNROLL for (size_t v = 0; v < Used; ++v) { acc[r][v] = hn::MulAdd(factor, columns[v], acc[r][v]); }
    }
    a += a_step;
    b += b_stride;
  }
}

// Calls Body::run<Vectors>(column) over `columns` (whole vectors) from `begin` on.
template <typename T, class Body>
HWY_INLINE void for_column_groups(size_t begin, size_t columns, const Body& body) {
  constexpr size_t kGroup = kTileVectors * kLanes<T>;
  size_t c = begin;
  for (; c + kGroup <= columns; c += kGroup) {
    body.template run<kTileVectors>(c);
  }
  const size_t left = (columns - c) / kLanes<T>;
  if constexpr (kTileVectors > 1) {
    if (left == 1) {
      body.template run<1>(c);
    }
  }
  if constexpr (kTileVectors > 2) {
    if (left == 2) {
      body.template run<2>(c);
    }
  }
  if constexpr (kTileVectors > 3) {
    if (left == 3) {
      body.template run<3>(c);
    }
  }
}

// Which scores are needed: those of keys (rows) by later queries (columns), or of queries (rows) by earlier keys (columns).
enum class Triangle { kColumnsFromRow, kColumnsToRow };

// scores[r][c] = bias + sum over k of rows[r][k] * columns[k][c] for whole tiles that touch the triangle. Undecayed, unmasked.
template <typename T, Triangle kTriangle>
struct Scores {
  const T* rows;  // (n, inner)
  size_t row_stride;
  const T* columns;  // (inner, n), rows kChunk apart
  size_t inner;
  const T* column_bias;  // added to each column, or null
  const T* row_bias;     // added to each row, or null
  T* scores;             // (n, n), rows kChunk apart
  size_t row = 0;

  template <size_t Vectors>
  HWY_INLINE void run(size_t c) const {
    constexpr Tag<T> d;
    Accumulators<T, kTileRows, Vectors> acc;
    clear<T>(acc);
    accumulate<T, Vectors>(acc, rows + row * row_stride, 1, row_stride, columns + c, kChunk, inner);
    G2C_UNROLL for (size_t r = 0; r < kTileRows; ++r) {
      const auto of_row = row_bias != nullptr ? hn::Set(d, row_bias[row + r]) : hn::Zero(d);
      G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
        const size_t column = c + v * kLanes<T>;
        auto sum = hn::Add(acc[r][v], of_row);
        if (column_bias != nullptr) {
          sum = hn::Add(sum, hn::Load(d, column_bias + column));
        }
        hn::Store(sum, d, scores + (row + r) * kChunk + column);
      }
    }
  }
};

template <typename T, Triangle kTriangle>
HWY_NOINLINE void compute_scores(Scores<T, kTriangle> s, size_t n) {
  const size_t padded = round_up(n, kPad<T>);
  for (s.row = 0; s.row < n; s.row += kTileRows) {
    if (kTriangle == Triangle::kColumnsFromRow) {
      for_column_groups<T>(s.row / kLanes<T> * kLanes<T>, padded, s);
    } else {
      for_column_groups<T>(0, round_up(s.row + kTileRows, kLanes<T>), s);
    }
  }
}

// to = scale * from + left^T right, over n tokens: the step from one chunk to the next. `to` may be `from`.
template <typename T>
struct StateUpdate {
  const T* left;  // (n, rows)
  size_t left_stride;
  const T* right;  // (n, columns)
  size_t right_stride;
  size_t n;
  const T* from;  // (rows, columns)
  T* to;          // likewise
  size_t stride;
  size_t rows;
  Vec<T> scale;

  template <size_t Vectors>
  HWY_INLINE void run(size_t c) const {
    constexpr Tag<T> d;
    for (size_t row = 0; row < rows; row += kTileRows) {
      Accumulators<T, kTileRows, Vectors> acc;
      clear<T>(acc);
      accumulate<T, Vectors>(acc, left + row, left_stride, 1, right + c, right_stride, n);
      G2C_UNROLL for (size_t r = 0; r < kTileRows; ++r) {
        G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
          const size_t at = (row + r) * stride + c + v * kLanes<T>;
          hn::Store(hn::MulAdd(scale, hn::Load(d, from + at), acc[r][v]), d, to + at);
        }
      }
    }
  }
};

template <typename T>
HWY_NOINLINE void update_state(const StateUpdate<T>& update, size_t columns) {
  for_column_groups<T>(0, round_up(columns, kLanes<T>), update);
}

// to = scale * from + sum over tokens of weight * row: the same step for z. Null weights are ones.
template <typename T>
void update_vector(const T* rows, size_t stride, const T* weights, size_t n, size_t columns, T scale, const T* from, T* to) {
  constexpr Tag<T> d;
  for (size_t c = 0; c < columns; c += kLanes<T>) {
    auto even = hn::Zero(d);
    auto odd = hn::Zero(d);
    size_t i = 0;
    for (; i + 1 < n; i += 2) {
      even = hn::MulAdd(hn::Set(d, weights != nullptr ? weights[i] : T{1}), hn::Load(d, rows + i * stride + c), even);
      odd = hn::MulAdd(hn::Set(d, weights != nullptr ? weights[i + 1] : T{1}), hn::Load(d, rows + (i + 1) * stride + c), odd);
    }
    if (i < n) {
      even = hn::MulAdd(hn::Set(d, weights != nullptr ? weights[i] : T{1}), hn::Load(d, rows + i * stride + c), even);
    }
    hn::Store(hn::MulAdd(hn::Set(d, scale), hn::Load(d, from + c), hn::Add(even, odd)), d, to + c);
  }
}

// For each token i: out_i = factor_i * slopes_i * (decay_i * (left_i state + bias_i vector) + sum over the triangle of scores_ti values_t).
template <typename T, Triangle kTriangle>
struct Mix {
  const T* left;  // (inner, n), rows kChunk apart
  size_t inner;
  const T* state;  // (inner, columns)
  size_t state_stride;
  const T* vector;  // (columns), or null
  const T* bias;    // (n), beside `vector`
  const T* decay;   // (n)
  const T* scores;  // (n, n), rows kChunk apart: column i holds the weights of token i
  const T* values;  // (n, columns)
  size_t value_stride;
  size_t n;
  const T* factors;   // (n), or null for ones
  const T* features;  // (n, columns), elu1 features whose slopes are factors as well, or null
  size_t feature_stride;
  T* out;  // (n, columns)
  size_t out_stride;
  // The sum over tokens of weight_i * weighted_i . (left_i state + bias_i vector), for the gradient of the decay; null if not wanted.
  const T* weights;
  const T* weighted;  // (n, columns), rows feature_stride apart
  Vec<T>* weighted_sum;

  template <size_t Rows, size_t Vectors>
  HWY_INLINE void tile(size_t row, size_t c) const {
    constexpr Tag<T> d;
    Accumulators<T, Rows, Vectors> acc;
    clear<T>(acc);
    accumulate<T, Vectors>(acc, left + row, kChunk, 1, state + c, state_stride, inner);
    if (vector != nullptr) {
      G2C_UNROLL for (size_t r = 0; r < Rows; ++r) {
        const auto factor = hn::Set(d, bias[row + r]);
        G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) { acc[r][v] = hn::MulAdd(factor, hn::Load(d, vector + c + v * kLanes<T>), acc[r][v]); }
      }
    }
    if (weights != nullptr) {
      G2C_UNROLL for (size_t r = 0; r < Rows; ++r) {
        const auto weight = hn::Set(d, weights[row + r]);
        G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
          const auto feature = hn::Load(d, weighted + (row + r) * feature_stride + c + v * kLanes<T>);
          *weighted_sum = hn::MulAdd(hn::Mul(weight, feature), acc[r][v], *weighted_sum);
        }
      }
    }
    G2C_UNROLL for (size_t r = 0; r < Rows; ++r) {
      const auto factor = hn::Set(d, decay[row + r]);
      G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) { acc[r][v] = hn::Mul(acc[r][v], factor); }
    }
    const size_t begin = kTriangle == Triangle::kColumnsFromRow ? 0 : row;
    const size_t end = kTriangle == Triangle::kColumnsFromRow && row + Rows < n ? row + Rows : n;
    accumulate<T, Vectors>(acc, scores + begin * kChunk + row, kChunk, 1, values + begin * value_stride + c, value_stride, end - begin);
    G2C_UNROLL for (size_t r = 0; r < Rows; ++r) {
      const auto of_row = factors != nullptr ? hn::Set(d, factors[row + r]) : hn::Set(d, T{1});
      G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
        const size_t column = c + v * kLanes<T>;
        auto value = hn::Mul(acc[r][v], of_row);
        if (features != nullptr) {
          value = hn::Mul(value, elu1_slope(hn::Load(d, features + (row + r) * feature_stride + column)));
        }
        hn::Store(value, d, out + (row + r) * out_stride + column);
      }
    }
  }

  // Tiles of several rows multiply values by scores of 0 in the corner that the triangle cuts off; with an infinity or a NaN among the values
  // that would be NaN, so there each row goes alone.
  bool finite;

  template <size_t Vectors>
  HWY_INLINE void run(size_t c) const {
    if (finite) {
      for (size_t row = 0; row < n; row += kTileRows) {
        tile<kTileRows, Vectors>(row, c);
      }
    } else {
      for (size_t row = 0; row < n; ++row) {
        tile<1, Vectors>(row, c);
      }
    }
  }
};

template <typename T, Triangle kTriangle>
HWY_NOINLINE void mix(const Mix<T, kTriangle>& m, size_t columns) {
  for_column_groups<T>(0, round_up(columns, kLanes<T>), m);
}

// The same sum with tokens as columns: out[r][i] = decay_i * (matrix columns)[r][i] + sum over tokens t >= i of left[t][r] scores[t][i].
template <typename T>
struct TransposedMix {
  const T* matrix;  // (rows, inner)
  size_t matrix_stride;
  size_t rows;
  const T* columns;  // (inner, n), rows kChunk apart
  size_t inner;
  const T* decay;  // (n)
  const T* left;   // (n, rows)
  size_t left_stride;
  const T* scores;  // (n, n), rows kChunk apart, zero above the diagonal
  size_t n;
  T* out;       // (rows, n), rows kChunk apart
  bool finite;  // whether `left` is: see Mix

  // Tokens of the diagonal block of vector Used - 1, then of the next.
  template <size_t Used, size_t Vectors>
  HWY_INLINE void add_stair(Accumulators<T, kTileRows, Vectors>& acc, size_t row, size_t c) const {
    constexpr Tag<T> d;
    const size_t begin = c + (Used - 1) * kLanes<T>;
    if (begin >= n) {
      return;
    }
    const size_t end = Used < Vectors && begin + kLanes<T> < n ? begin + kLanes<T> : n;
    size_t t = begin;
    if (!finite) {
      for (; t < end && t < begin + kLanes<T>; ++t) {
        const auto reached = hn::FirstN(d, t - begin + 1);
        G2C_UNROLL for (size_t r = 0; r < kTileRows; ++r) {
          const auto factor = hn::Set(d, left[t * left_stride + row + r]);
          G2C_UNROLL for (size_t v = 0; v < Used; ++v) {
            const auto sum = hn::MulAdd(factor, hn::Load(d, scores + t * kChunk + c + v * kLanes<T>), acc[r][v]);
            acc[r][v] = v + 1 < Used ? sum : hn::IfThenElse(reached, sum, acc[r][v]);
          }
        }
      }
    }
    accumulate<T, Used>(acc, left + t * left_stride + row, left_stride, 1, scores + t * kChunk + c, kChunk, end - t);
    if constexpr (Used < Vectors) {
      add_stair<Used + 1, Vectors>(acc, row, c);
    }
  }

  template <size_t Vectors>
  HWY_INLINE void run(size_t c) const {
    constexpr Tag<T> d;
    for (size_t row = 0; row < rows; row += kTileRows) {
      Accumulators<T, kTileRows, Vectors> acc;
      clear<T>(acc);
      accumulate<T, Vectors>(acc, matrix + row * matrix_stride, 1, matrix_stride, columns + c, kChunk, inner);
      G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
        const auto factor = hn::LoadU(d, decay + c + v * kLanes<T>);
        G2C_UNROLL for (size_t r = 0; r < kTileRows; ++r) { acc[r][v] = hn::Mul(acc[r][v], factor); }
      }
      add_stair<1, Vectors>(acc, row, c);
      G2C_UNROLL for (size_t r = 0; r < kTileRows; ++r) {
        G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) { hn::Store(acc[r][v], d, out + (row + r) * kChunk + c + v * kLanes<T>); }
      }
    }
  }
};

template <typename T>
HWY_NOINLINE void mix_transposed(const TransposedMix<T>& m) {
  for_column_groups<T>(0, round_up(m.n, kLanes<T>), m);
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
