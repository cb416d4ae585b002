// The forward pass of one head, chunk by chunk.
#if defined(G2C_KERNELS_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_FORWARD_INL_H_
#undef G2C_KERNELS_FORWARD_INL_H_
#else
#define G2C_KERNELS_FORWARD_INL_H_
#endif

#include <vector>

#include "kernels/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

// What stays with a head from chunk to chunk.
template <typename T>
struct ForwardHead {
  size_t index;  // among all states
  State<T> state;
  DecayTables<T> decay;
  T* denominator;  // of the row, or null
  bool state_is_zero;
};

// Heads [begin, end) of a sequence side by side.
template <typename T>
class ForwardPass {
 public:
  ForwardPass(const Problem& problem, const ForwardTensors& tensors, size_t sequence, int64_t begin, int64_t end, Layout& layout)
      : problem_(problem),
        tensors_(tensors),
        key_dim_(static_cast<size_t>(problem.key_dim)),
        value_dim_(static_cast<size_t>(problem.value_dim)),
        q_(stage(layout, tensors.q, sequence, begin, end, key_dim_)),
        k_(stage(layout, tensors.k, sequence, begin, end, key_dim_)),
        v_(stage(layout, tensors.v, sequence, begin, end, value_dim_)),
        out_(stage(layout, tensors.out, sequence, begin, end, value_dim_)),
        queries_(layout.take<T>(round_up(key_dim_, kPad<T>) * kChunk)),
        scores_(layout.take<T>(kChunk * kChunk)),
        sums_(layout.take<T>(kChunk)),
        inverses_(layout.take<T>(kChunk)) {
    for (int64_t head = begin; head < end; ++head) {
      const int64_t row = problem.sequences[sequence].batch * problem.heads + head;
      heads.push_back({sequence * static_cast<size_t>(problem.heads) + static_cast<size_t>(head), State<T>(layout, key_dim_, value_dim_, key_dim_),
                       DecayTables<T>(problem, head), at_index<T>(tensors.denominator, static_cast<size_t>(row), static_cast<size_t>(problem.time)),
                       tensors.initial_S == nullptr});
    }
  }

  void load_states() {
    for (ForwardHead<T>& head : heads) {
      load_matrix(head.state, at_index<T>(tensors_.initial_S, head.index, key_dim_ * value_dim_), false);
      load_vector(head.state.vector, at_index<T>(tensors_.initial_z, head.index, key_dim_), key_dim_);
    }
  }

  void store_states() const {
    for (const ForwardHead<T>& head : heads) {
      if (tensors_.final_S != nullptr) {
        store_matrix(head.state, at_index<T>(tensors_.final_S, head.index, key_dim_ * value_dim_), false);
        std::copy_n(head.state.vector, key_dim_, at_index<T>(tensors_.final_z, head.index, key_dim_));
      }
    }
  }

  void clear_masked(const TokenList& masked) const { out_.clear(masked); }

  void run(const Chunk& chunk, bool outputs, bool update) {
    k_.load_features(problem_.feature_map, chunk.tokens, chunk.n);
    v_.load(chunk.tokens, chunk.n);
    if (outputs) {
      q_.load_features(problem_.feature_map, chunk.tokens, chunk.n);
    }
    for (size_t i = 0; i < heads.size(); ++i) {
      if (outputs) {
        write_outputs(i, chunk);
      }
      if (update) {
        advance(i, chunk.n);
      }
    }
    if (outputs) {
      out_.store(chunk.tokens, chunk.n);
    }
  }

  std::vector<ForwardHead<T>> heads;

 private:
  template <typename Data>
  Stage<T> stage(Layout& layout, const View<Data>& view, size_t sequence, int64_t begin, int64_t end, size_t width) const {
    return Stage<T>(layout, problem_.type, view, problem_.sequences[sequence].batch, begin, static_cast<size_t>(end - begin), width, kChunk);
  }

  void write_outputs(size_t i, const Chunk& chunk) {
    const ForwardHead<T>& head = heads[i];
    const size_t n = chunk.n;
    transpose(q_.head(i), q_.stride(), round_up(n, kPad<T>), round_up(key_dim_, 4), queries_, kChunk);
    compute_scores(Scores<T, Triangle::kColumnsFromRow>{k_.head(i), k_.stride(), queries_, key_dim_, nullptr, nullptr, scores_}, n);
    decay_scores(scores_, n, head.decay, sums_);
    if (problem_.normalize) {
      compute_normalizers(head, chunk);
    }
    Mix<T, Triangle::kColumnsFromRow> m{};
    m.left = queries_;
    m.inner = head.state_is_zero ? 0 : key_dim_;
    m.state = head.state.matrix;
    m.state_stride = head.state.stride;
    m.decay = head.decay.up(1);
    m.scores = scores_;
    m.values = v_.head(i);
    m.value_stride = v_.stride();
    m.n = n;
    m.factors = problem_.normalize ? inverses_ : nullptr;
    m.out = out_.head(i);
    m.out_stride = out_.stride();
    m.finite = all_finite(v_.head(i), n, round_up(value_dim_, kLanes<T>), v_.stride());
    mix(m, value_dim_);
  }

  // 1 / (f(q_i) z_i + eps) of the chunk's tokens.
  void compute_normalizers(const ForwardHead<T>& head, const Chunk& chunk) {
    constexpr Tag<T> d;
    for (size_t i = 0; i < chunk.n; i += kLanes<T>) {
      auto past = hn::Zero(d);
      if (!head.state_is_zero) {
        auto odd = hn::Zero(d);
        size_t a = 0;
        for (; a + 1 < key_dim_; a += 2) {
          past = hn::MulAdd(hn::Set(d, head.state.vector[a]), hn::Load(d, queries_ + a * kChunk + i), past);
          odd = hn::MulAdd(hn::Set(d, head.state.vector[a + 1]), hn::Load(d, queries_ + (a + 1) * kChunk + i), odd);
        }
        if (a < key_dim_) {
          past = hn::MulAdd(hn::Set(d, head.state.vector[a]), hn::Load(d, queries_ + a * kChunk + i), past);
        }
        past = hn::Mul(hn::Add(past, odd), hn::LoadU(d, head.decay.up(static_cast<ptrdiff_t>(i) + 1)));
      }
      const auto sum = hn::Add(hn::Add(past, hn::Load(d, sums_ + i)), hn::Set(d, static_cast<T>(problem_.eps)));
      hn::Store(sum, d, sums_ + i);
      hn::Store(hn::Div(hn::Set(d, T{1}), sum), d, inverses_ + i);
    }
    if (head.denominator != nullptr) {
      for (size_t i = 0; i < chunk.n; ++i) {
        head.denominator[chunk.tokens[i]] = sums_[i];
      }
    }
  }

  // The state after the chunk; scales the keys.
  void advance(size_t i, size_t n) {
    ForwardHead<T>& head = heads[i];
    State<T>& state = head.state;
    T* const keys = k_.head(i);
    if (!head.decay.is_one()) {
      scale_rows(keys, n, key_dim_, k_.stride(), head.decay.down(n - 1));
    }
    const T scale = *head.decay.up(static_cast<ptrdiff_t>(n));
    update_state(StateUpdate<T>{keys, k_.stride(), v_.head(i), v_.stride(), n, state.matrix, state.matrix, state.stride, key_dim_,
                                hn::Set(Tag<T>(), scale)},
                 value_dim_);
    update_vector<T>(keys, k_.stride(), nullptr, n, key_dim_, scale, state.vector, state.vector);
    head.state_is_zero = false;
  }

  const Problem& problem_;
  const ForwardTensors& tensors_;
  size_t key_dim_, value_dim_;
  Stage<T> q_, k_, v_, out_;  // f(q), f(k), v and out
  T* queries_;                // f(q) of a head, (key_dim, tokens)
  T* scores_;                 // (keys, queries)
  T* sums_;                   // (tokens)
  T* inverses_;               // (tokens)
};

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
