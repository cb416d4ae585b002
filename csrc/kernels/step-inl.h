// One token for one head: a single pass over the state.
#if defined(G2C_KERNELS_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_STEP_INL_H_
#undef G2C_KERNELS_STEP_INL_H_
#else
#define G2C_KERNELS_STEP_INL_H_
#endif

#include <algorithm>

#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

// Columns that go side by side, in vectors: two sets of sums and the values have to fit into the registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr size_t kStepVectors = 8;
#else
inline constexpr size_t kStepVectors = 4;
#endif

// new_S = g S + key value^T, out = factor query new_S, where the rows of S and new_S may lie anywhere (`stride` apart) and may be the same.
template <typename T>
struct StateStep {
  const T* S;
  T* new_S;
  size_t rows;
  size_t stride;
  const T* query;  // f(q)
  const T* key;    // f(k)
  const T* value;
  T* out;
  T g;
  T factor;

  template <size_t Vectors>
  HWY_INLINE void add_row(size_t row, size_t c, const Vec<T> (&values)[Vectors], Vec<T> (&sums)[Vectors]) const {
    constexpr Tag<T> d;
    const auto scale = hn::Set(d, g);
    const auto k = hn::Set(d, key[row]);
    const auto q = hn::Set(d, query[row]);
    const size_t at = row * stride + c;
    G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
      const auto s = hn::MulAdd(k, values[v], hn::Mul(scale, hn::LoadU(d, S + at + v * kLanes<T>)));
      hn::StoreU(s, d, new_S + at + v * kLanes<T>);
      sums[v] = hn::MulAdd(q, s, sums[v]);
    }
  }

  // Rows go in turn to two sets of sums, so that the additions need not wait for each other.
  template <size_t Vectors>
  HWY_INLINE void run(size_t c) const {
    constexpr Tag<T> d;
    Vec<T> values[Vectors];
    Vec<T> even[Vectors];
    Vec<T> odd[Vectors];
    G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
      values[v] = hn::LoadU(d, value + c + v * kLanes<T>);
      even[v] = hn::Zero(d);
      odd[v] = hn::Zero(d);
    }
    size_t row = 0;
    for (; row + 2 <= rows; row += 2) {
      add_row<Vectors>(row, c, values, even);
      add_row<Vectors>(row + 1, c, values, odd);
    }
    if (row < rows) {
      add_row<Vectors>(row, c, values, even);
    }
    G2C_UNROLL for (size_t v = 0; v < Vectors; ++v) {
      hn::StoreU(hn::Mul(hn::Set(d, factor), hn::Add(even[v], odd[v])), d, out + c + v * kLanes<T>);
    }
  }

  // Columns [begin, end) that do not fill a vector.
  void run_tail(size_t begin, size_t end) const {
    for (size_t c = begin; c < end; ++c) {
      T sum = 0;
      for (size_t row = 0; row < rows; ++row) {
        const T s = g * S[row * stride + c] + key[row] * value[c];
        new_S[row * stride + c] = s;
        sum += query[row] * s;
      }
      out[c] = factor * sum;
    }
  }
};

template <typename T>
HWY_INLINE void step_columns(const StateStep<T>& step, size_t columns) {
  size_t c = 0;
  for (; c + kStepVectors * kLanes<T> <= columns; c += kStepVectors * kLanes<T>) {
    step.template run<kStepVectors>(c);
  }
  if constexpr (kStepVectors > 4) {
    if (c + 4 * kLanes<T> <= columns) {
      step.template run<4>(c);
      c += 4 * kLanes<T>;
    }
  }
  if (c + 2 * kLanes<T> <= columns) {
    step.template run<2>(c);
    c += 2 * kLanes<T>;
  }
  if (c + kLanes<T> <= columns) {
    step.template run<1>(c);
    c += kLanes<T>;
  }
  step.run_tail(c, columns);
}

// new_z = g z + key; returns query new_z.
template <typename T>
HWY_INLINE T step_vector(const T* z, T* new_z, const T* query, const T* key, T g, size_t size) {
  constexpr Tag<T> d;
  T tail = 0;
  size_t a = 0;
  auto sum = hn::Zero(d);
  for (; a + kLanes<T> <= size; a += kLanes<T>) {
    const auto next = hn::MulAdd(hn::Set(d, g), hn::LoadU(d, z + a), hn::Load(d, key + a));
    hn::StoreU(next, d, new_z + a);
    sum = hn::MulAdd(hn::Load(d, query + a), next, sum);
  }
  for (; a < size; ++a) {
    new_z[a] = g * z[a] + key[a];
    tail += query[a] * new_z[a];
  }
  return tail + hn::GetLane(hn::SumOfLanes(d, sum));
}

// A few neighbouring heads of a row: what does not touch S is done for all of them first, since one head's exponentials and sums are too few to fill the
// pipeline.
template <typename T>
class HeadSteps {
 public:
  // Heads [begin, end) of row `batch`.
  HeadSteps(const Problem& problem, const StepTensors& tensors, int64_t batch, int64_t begin, int64_t end, Layout& layout)
      : problem_(problem),
        tensors_(tensors),
        begin_(begin),
        first_state_(static_cast<size_t>(batch * problem.heads + begin)),
        heads_(static_cast<size_t>(end - begin)),
        key_dim_(static_cast<size_t>(problem.key_dim)),
        value_dim_(static_cast<size_t>(problem.value_dim)),
        q_(layout, problem.type, tensors.q, batch, begin, heads_, key_dim_, 1),
        k_(layout, problem.type, tensors.k, batch, begin, heads_, key_dim_, 1),
        v_(layout, problem.type, tensors.v, batch, begin, heads_, value_dim_, 1),
        out_(layout, problem.type, tensors.out, batch, begin, heads_, value_dim_, 1),
        factors_(layout.take<T>(heads_)) {}

  void run() {
    constexpr int64_t kToken = 0;
    q_.load_features(problem_.feature_map, &kToken, 1);
    k_.load_features(problem_.feature_map, &kToken, 1);
    v_.load(&kToken, 1);
    for (size_t i = 0; i < heads_; ++i) {
      const size_t at = (first_state_ + i) * key_dim_;
      const T sum = step_vector(static_cast<const T*>(tensors_.z) + at, static_cast<T*>(tensors_.new_z) + at, q_.head(i), k_.head(i), decay(i), key_dim_);
      factors_[i] = problem_.normalize ? T{1} / (sum + static_cast<T>(problem_.eps)) : T{1};
    }
    for (size_t i = 0; i < heads_; ++i) {
      const size_t at = (first_state_ + i) * key_dim_ * value_dim_;
      step_columns(StateStep<T>{static_cast<const T*>(tensors_.S) + at, static_cast<T*>(tensors_.new_S) + at, key_dim_, value_dim_, q_.head(i), k_.head(i),
                                v_.head(i), out_.head(i), decay(i), factors_[i]},
                   value_dim_);
    }
    out_.store(&kToken, 1);
  }

 private:
  T decay(size_t i) const { return problem_.decay == nullptr ? T{1} : static_cast<const T*>(problem_.decay)[begin_ + static_cast<int64_t>(i)]; }

  const Problem& problem_;
  const StepTensors& tensors_;
  int64_t begin_;
  size_t first_state_, heads_, key_dim_, value_dim_;
  Stage<T> q_, k_, v_, out_;
  T* factors_;  // (heads)
};

// Heads [begin, end) of all heads of all rows.
template <typename T>
void step_heads(const Problem& problem, const StepTensors& tensors, int64_t begin, int64_t end) {
  constexpr int64_t kHeads = 8;
  Layout size;
  HeadSteps<T>(problem, tensors, 0, 0, kHeads, size);
  std::byte* const scratch = thread_scratch(size.used());
  while (begin < end) {
    const int64_t head = begin % problem.heads;
    const int64_t count = std::min({kHeads, problem.heads - head, end - begin});
    Layout layout(scratch);
    HeadSteps<T>(problem, tensors, begin / problem.heads, head, head + count, layout).run();
    begin += count;
  }
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
