// The backward pass: one sweep forward in time for the gradient of q, one backward for those of k and v.
#if defined(G2C_KERNELS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_BACKWARD_INL_H_
#undef G2C_KERNELS_BACKWARD_INL_H_
#else
#define G2C_KERNELS_BACKWARD_INL_H_
#endif

#include <vector>

#include "kernels/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

// What stays with a head from chunk to chunk.
template <typename T>
struct BackwardHead {
  size_t index;       // among all states
  State<T> state;     // S^T (value_dim, key_dim) and z
  State<T> gradient;  // the gradient of S^T and of z
  DecayTables<T> decay;
  const T* denominator;  // of the row
  T* corrections;        // -(grad_out_t . out_t) / denominator_t of the kept tokens: the gradient of the denominators
  T* saved_states;       // S^T and z before each chunk, if the gradient of the decay is wanted; the state may live there
  bool state_is_zero;
  bool gradient_is_zero;
  double grad_decay;
};

// Heads [begin, end) of a sequence side by side. In the formulas, w_t = grad_out_t / denominator_t and r_t is the correction.
template <typename T>
class BackwardPass {
 public:
  // `corrections` and `saved_states` hold all chunks of head after head; the latter may be null.
  BackwardPass(const Problem& problem, const BackwardTensors& tensors, size_t sequence, int64_t begin, int64_t end, int64_t chunks, T* corrections,
               T* saved_states, Layout& layout)
      : problem_(problem),
        tensors_(tensors),
        key_dim_(static_cast<size_t>(problem.key_dim)),
        value_dim_(static_cast<size_t>(problem.value_dim)),
        q_(stage(layout, tensors.q, sequence, begin, end, key_dim_)),
        k_(stage(layout, tensors.k, sequence, begin, end, key_dim_)),
        v_(stage(layout, tensors.v, sequence, begin, end, value_dim_)),
        out_(stage(layout, tensors.out, sequence, begin, end, value_dim_)),
        w_(stage(layout, tensors.grad_out, sequence, begin, end, value_dim_)),
        grad_q_(stage(layout, tensors.grad_q, sequence, begin, end, key_dim_)),
        grad_k_(stage(layout, tensors.grad_k, sequence, begin, end, key_dim_)),
        grad_v_(stage(layout, tensors.grad_v, sequence, begin, end, value_dim_)),
        keys_transposed_(layout.take<T>(round_up(key_dim_, kPad<T>) * kChunk)),
        values_transposed_(layout.take<T>(round_up(value_dim_, kPad<T>) * kChunk)),
        scores_(layout.take<T>(kChunk * kChunk)),
        score_gradients_(layout.take<T>(kChunk * kChunk)) {
    for (int64_t head = begin; head < end; ++head) {
      const auto row = static_cast<size_t>(problem.sequences[sequence].batch * problem.heads + head);
      heads.push_back({sequence * static_cast<size_t>(problem.heads) + static_cast<size_t>(head), State<T>(layout, value_dim_, key_dim_, key_dim_),
                       State<T>(layout, value_dim_, key_dim_, key_dim_), DecayTables<T>(problem, head),
                       at_index<T>(tensors.denominator, row, static_cast<size_t>(problem.time)), corrections, saved_states, tensors.initial_S == nullptr,
                       tensors.grad_final_S == nullptr, 0.0});
      corrections = corrections == nullptr ? nullptr : corrections + static_cast<size_t>(chunks) * kChunk;
      saved_states = saved_states == nullptr ? nullptr : saved_states + static_cast<size_t>(chunks) * heads.back().state.size();
    }
    std::fill_n(ones_, kChunk, T{1});
  }

  void load_states() {
    for (BackwardHead<T>& head : heads) {
      load_matrix(head.state, at_index<T>(tensors_.initial_S, head.index, key_dim_ * value_dim_), true);
      load_vector(head.state.vector, at_index<T>(tensors_.initial_z, head.index, key_dim_), key_dim_);
      load_matrix(head.gradient, at_index<T>(tensors_.grad_final_S, head.index, key_dim_ * value_dim_), true);
      load_vector(head.gradient.vector, at_index<T>(tensors_.grad_final_z, head.index, key_dim_), key_dim_);
    }
  }

  // For a sweep over all chunks in one go: the state lives in the place that it would be copied to.
  void keep_states_where_saved() {
    for (BackwardHead<T>& head : heads) {
      if (head.saved_states != nullptr) {
        std::copy_n(head.state.matrix, head.state.size(), head.saved_states);
        head.state.move_to(head.saved_states);
      }
    }
  }

  void store_states() const {
    for (const BackwardHead<T>& head : heads) {
      if (tensors_.grad_initial_S != nullptr) {
        store_matrix(head.gradient, at_index<T>(tensors_.grad_initial_S, head.index, key_dim_ * value_dim_), true);
      }
      if (tensors_.grad_initial_z != nullptr) {
        std::copy_n(head.gradient.vector, key_dim_, at_index<T>(tensors_.grad_initial_z, head.index, key_dim_));
      }
    }
  }

  void clear_masked(const TokenList& masked) const {
    grad_q_.clear(masked);
    grad_k_.clear(masked);
    grad_v_.clear(masked);
  }

  // Forward in time. With P_ti = (w_t . v_i + r_t) g^(t-i) the gradient of f(q_t) is P f(K) + g^(t+1) (S w_t + r_t z), S and z before the chunk.
  void run_queries(const Chunk& chunk, int64_t index, bool outputs, bool update) {
    k_.load_features(problem_.feature_map, chunk.tokens, chunk.n);
    v_.load(chunk.tokens, chunk.n);
    if (outputs) {
      q_.load_features(problem_.feature_map, chunk.tokens, chunk.n);
      w_.load(chunk.tokens, chunk.n);
      if (problem_.normalize) {
        out_.load(chunk.tokens, chunk.n);
      }
    }
    for (size_t i = 0; i < heads.size(); ++i) {
      if (outputs) {
        write_query_gradients(i, chunk, index);
      }
      if (update) {
        BackwardHead<T>& head = heads[i];
        if (!head.decay.is_one()) {
          scale_rows(k_.head(i), chunk.n, key_dim_, k_.stride(), head.decay.down(chunk.n - 1));
        }
        T* const next = head.state.matrix == saved_state(head, index) ? saved_state(head, index + 1) : head.state.matrix;
        advance(head, head.state, next, v_.head(i), k_.head(i), nullptr, chunk.n);
        head.state_is_zero = false;
      }
    }
    if (outputs) {
      grad_q_.store(chunk.tokens, chunk.n);
    }
  }

  // Backward in time. With R the gradient of S after the chunk that of f(k_i) is P^T f(Q) + g^(n-1-i) R (v_i, 1), that of v_i is
  // A^T w + g^(n-1-i) f(k_i) R, where A_ti = f(q_t) . f(k_i) g^(t-i).
  void run_keys(const Chunk& chunk, int64_t index, bool outputs, bool update) {
    q_.load_features(problem_.feature_map, chunk.tokens, chunk.n);
    w_.load(chunk.tokens, chunk.n);
    if (outputs) {
      k_.load_features(problem_.feature_map, chunk.tokens, chunk.n);
      v_.load(chunk.tokens, chunk.n);
    }
    for (size_t i = 0; i < heads.size(); ++i) {
      BackwardHead<T>& head = heads[i];
      const T* const corrections = head.corrections + static_cast<size_t>(index) * kChunk;
      divide_gradients(i, chunk, nullptr);
      if (outputs) {
        const Vec<T> pairs = compute_key_scores(i, chunk.n, corrections);
        write_key_gradients(i, chunk.n, pairs);
        write_value_gradients(i, chunk.n);
        if (head.saved_states != nullptr) {
          const auto factor = static_cast<double>(*head.decay.up_derivative(static_cast<ptrdiff_t>(chunk.n)));
          head.grad_decay += factor * dot(head.gradient, saved_state(head, index));
        }
      }
      if (update) {
        scale_rows(q_.head(i), chunk.n, key_dim_, q_.stride(), head.decay.up(1));
        advance(head, head.gradient, head.gradient.matrix, w_.head(i), q_.head(i), corrections, chunk.n);
        head.gradient_is_zero = false;
      }
    }
    if (outputs) {
      grad_k_.store(chunk.tokens, chunk.n);
      grad_v_.store(chunk.tokens, chunk.n);
    }
  }

  std::vector<BackwardHead<T>> heads;

 private:
  template <typename Data>
  Stage<T> stage(Layout& layout, const View<Data>& view, size_t sequence, int64_t begin, int64_t end, size_t width) const {
    return Stage<T>(layout, problem_.type, view, problem_.sequences[sequence].batch, begin, static_cast<size_t>(end - begin), width, kChunk);
  }

  static double sum_of(Vec<T> sum) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(Tag<T>(), sum))); }

  bool has_slopes() const { return problem_.feature_map == FeatureMap::kElu1; }

  // Turns the gradients of the output into w, and if `corrections` is given writes r = -w . out to it.
  HWY_NOINLINE void divide_gradients(size_t i, const Chunk& chunk, T* corrections) const {
    constexpr Tag<T> d;
    if (corrections != nullptr) {
      std::fill_n(corrections, kChunk, T{0});
    }
    if (!problem_.normalize) {
      return;
    }
    for (size_t t = 0; t < chunk.n; ++t) {
      T* const row = w_.head(i) + t * w_.stride();
      const T* const out = out_.head(i) + t * out_.stride();
      const auto inverse = hn::Set(d, T{1} / heads[i].denominator[chunk.tokens[t]]);
      auto sum = hn::Zero(d);
      for (size_t c = 0; c < value_dim_; c += kLanes<T>) {
        // The columns beyond the width have to stay zero, whatever the inverse is.
        const auto inside = hn::FirstN(d, std::min(kLanes<T>, value_dim_ - c));
        const auto weight = hn::IfThenElseZero(inside, hn::Mul(inverse, hn::Load(d, row + c)));
        hn::Store(weight, d, row + c);
        if (corrections != nullptr) {
          sum = hn::NegMulAdd(weight, hn::Load(d, out + c), sum);
        }
      }
      if (corrections != nullptr) {
        corrections[t] = hn::GetLane(hn::SumOfLanes(d, sum));
      }
    }
  }

  void write_query_gradients(size_t i, const Chunk& chunk, int64_t index) {
    BackwardHead<T>& head = heads[i];
    const size_t n = chunk.n;
    T* const corrections = head.corrections + static_cast<size_t>(index) * kChunk;
    divide_gradients(i, chunk, corrections);
    transpose(w_.head(i), w_.stride(), round_up(n, kPad<T>), round_up(value_dim_, 4), values_transposed_, kChunk);
    compute_scores(Scores<T, Triangle::kColumnsFromRow>{v_.head(i), v_.stride(), values_transposed_, value_dim_, corrections, nullptr, scores_}, n);
    decay_scores<T>(scores_, n, head.decay, nullptr);

    auto weighted_sum = hn::Zero(Tag<T>());
    Mix<T, Triangle::kColumnsFromRow> m{};
    m.left = values_transposed_;
    m.inner = head.state_is_zero ? 0 : value_dim_;
    m.state = head.state.matrix;
    m.state_stride = head.state.stride;
    m.vector = head.state.vector;
    m.bias = corrections;
    m.decay = head.decay.up(1);
    m.scores = scores_;
    m.values = k_.head(i);
    m.value_stride = k_.stride();
    m.n = n;
    m.features = has_slopes() ? q_.head(i) : nullptr;
    m.feature_stride = q_.stride();
    m.out = grad_q_.head(i);
    m.out_stride = grad_q_.stride();
    m.finite = all_finite(k_.head(i), n, round_up(key_dim_, kLanes<T>), k_.stride());
    if (head.saved_states != nullptr) {
      T* const slot = saved_state(head, index);
      if (slot != head.state.matrix) {
        std::copy_n(head.state.matrix, head.state.size(), slot);
      }
      m.weights = head.decay.up_derivative(1);
      m.weighted = q_.head(i);
      m.weighted_sum = &weighted_sum;
    }
    mix(m, key_dim_);
    head.grad_decay += sum_of(weighted_sum);
  }

  // Decayed A and P; returns the pairs' part of the gradient of the decay.
  Vec<T> compute_key_scores(size_t i, size_t n, const T* corrections) {
    const BackwardHead<T>& head = heads[i];
    const size_t padded = round_up(n, kPad<T>);
    transpose(k_.head(i), k_.stride(), padded, round_up(key_dim_, 4), keys_transposed_, kChunk);
    transpose(v_.head(i), v_.stride(), padded, round_up(value_dim_, 4), values_transposed_, kChunk);
    compute_scores(Scores<T, Triangle::kColumnsToRow>{q_.head(i), q_.stride(), keys_transposed_, key_dim_, nullptr, nullptr, scores_}, n);
    compute_scores(Scores<T, Triangle::kColumnsToRow>{w_.head(i), w_.stride(), values_transposed_, value_dim_, nullptr, corrections, score_gradients_}, n);
    return head.saved_states != nullptr ? decay_score_pairs<T, true>(scores_, score_gradients_, n, head.decay)
                                        : decay_score_pairs<T, false>(scores_, score_gradients_, n, head.decay);
  }

  void write_key_gradients(size_t i, size_t n, Vec<T> weighted_sum) {
    BackwardHead<T>& head = heads[i];
    Mix<T, Triangle::kColumnsToRow> m{};
    m.left = values_transposed_;
    m.inner = head.gradient_is_zero ? 0 : value_dim_;
    m.state = head.gradient.matrix;
    m.state_stride = head.gradient.stride;
    m.vector = head.gradient.vector;
    m.bias = ones_;
    m.decay = head.decay.down(n - 1);
    m.scores = score_gradients_;
    m.values = q_.head(i);
    m.value_stride = q_.stride();
    m.n = n;
    m.features = has_slopes() ? k_.head(i) : nullptr;
    m.feature_stride = k_.stride();
    m.out = grad_k_.head(i);
    m.out_stride = grad_k_.stride();
    m.finite = all_finite(q_.head(i), n, round_up(key_dim_, kLanes<T>), q_.stride());
    if (head.saved_states != nullptr) {
      m.weights = head.decay.down_derivative(n - 1);
      m.weighted = k_.head(i);
      m.weighted_sum = &weighted_sum;
    }
    mix(m, key_dim_);
    head.grad_decay += sum_of(weighted_sum);
  }

  // With tokens as columns, since it wants the same layout of R as the gradient of k; takes the place of the transposed values.
  void write_value_gradients(size_t i, size_t n) {
    const BackwardHead<T>& head = heads[i];
    TransposedMix<T> m{};
    m.matrix = head.gradient.matrix;
    m.matrix_stride = head.gradient.stride;
    m.rows = value_dim_;
    m.columns = keys_transposed_;
    m.inner = head.gradient_is_zero ? 0 : key_dim_;
    m.decay = head.decay.down(n - 1);
    m.left = w_.head(i);
    m.left_stride = w_.stride();
    m.scores = scores_;
    m.n = n;
    m.out = values_transposed_;
    m.finite = all_finite(w_.head(i), n, round_up(value_dim_, kLanes<T>), w_.stride());
    mix_transposed(m);
    transpose(values_transposed_, kChunk, round_up(value_dim_, kPad<T>), round_up(n, 4), grad_v_.head(i), grad_v_.stride());
  }

  static T* saved_state(const BackwardHead<T>& head, int64_t index) {
    return head.saved_states == nullptr ? nullptr : head.saved_states + static_cast<size_t>(index) * head.state.size();
  }

  // The state becomes g^n state + left^T right and moves to `to`; its vector likewise with weights instead of `left` (null: ones).
  void advance(const BackwardHead<T>& head, State<T>& state, T* to, const T* left, const T* right, const T* weights, size_t n) const {
    const T scale = *head.decay.up(static_cast<ptrdiff_t>(n));
    const T* const matrix = state.matrix;
    const T* const vector = state.vector;
    state.move_to(to);
    update_state(StateUpdate<T>{left, v_.stride(), right, k_.stride(), n, matrix, state.matrix, state.stride, value_dim_, hn::Set(Tag<T>(), scale)}, key_dim_);
    update_vector<T>(right, k_.stride(), weights, n, key_dim_, scale, vector, state.vector);
  }

  const Problem& problem_;
  const BackwardTensors& tensors_;
  size_t key_dim_, value_dim_;
  Stage<T> q_, k_, v_, out_, w_;  // f(q), f(k), v, out, and grad_out that becomes w
  Stage<T> grad_q_, grad_k_, grad_v_;
  T* keys_transposed_;    // f(k) of a head, (key_dim, tokens)
  T* values_transposed_;  // v or w of a head, (value_dim, tokens)
  T* scores_;             // (tokens, tokens)
  T* score_gradients_;    // (tokens, tokens)
  T ones_[kChunk];
};

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
