#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward.cpp"
#include <hwy/foreach_target.h>

#include "kernels/backward-inl.h"
#include "kernels/segments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

// `grad_decay` gets the gradient of each head's decay.
template <typename T>
void backward_heads(const Problem& problem, const BackwardTensors& tensors, const TokenPlan& plan, size_t sequence, int64_t begin, int64_t end,
                    double* grad_decay) {
  const TokenList& tokens = plan.kept(sequence);
  const int64_t chunks = Chunk::count(tokens);
  const auto all_chunks = static_cast<size_t>(chunks * (end - begin));
  Layout size;
  const BackwardPass<T> sized(problem, tensors, sequence, begin, end, chunks, nullptr, nullptr, size);
  const AlignedBytes corrections = allocate_aligned(all_chunks * kChunk * sizeof(T));
  const AlignedBytes saved = tensors.grad_decay == nullptr ? nullptr : allocate_aligned(all_chunks * sized.heads[0].state.size() * sizeof(T));
  Layout layout(thread_scratch(size.used()));
  BackwardPass<T> pass(problem, tensors, sequence, begin, end, chunks, reinterpret_cast<T*>(corrections.get()), reinterpret_cast<T*>(saved.get()), layout);
  pass.load_states();
  if (chunks > 0) {
    pass.keep_states_where_saved();
  }
  for (int64_t c = 0; c < chunks; ++c) {
    pass.run_queries(Chunk(tokens, c), c, true, c + 1 < chunks);
  }
  const bool wants_initial = tensors.grad_initial_S != nullptr || tensors.grad_initial_z != nullptr;
  for (int64_t c = chunks - 1; c >= 0; --c) {
    pass.run_keys(Chunk(tokens, c), c, true, c > 0 || wants_initial);
  }
  pass.store_states();
  pass.clear_masked(plan.masked(sequence));
  for (const BackwardHead<T>& head : pass.heads) {
    *grad_decay++ = head.grad_decay;
  }
}

// A thread's part in sweep_segments, for the gradient of q (kOfQueries) or those of k and v.
template <typename T, bool kOfQueries>
class BackwardWorker {
 public:
  BackwardWorker(const Problem& problem, const BackwardTensors& tensors, size_t sequence, int64_t head, T* corrections, T* saved_states, Layout& layout)
      : pass(problem, tensors, sequence, head, head + 1, 0, corrections, saved_states, layout) {}

  State<T>& state() { return kOfQueries ? pass.heads[0].state : pass.heads[0].gradient; }
  void clear_state() {
    state().clear();
    set_zero(true);
  }
  void advance(const Chunk& chunk, int64_t index) { run(chunk, index, false); }
  void write(const Chunk& chunk, int64_t index) {
    set_zero(false);
    run(chunk, index, true);
  }
  double contribution() { return std::exchange(pass.heads[0].grad_decay, 0.0); }

  BackwardPass<T> pass;

 private:
  void set_zero(bool zero) { (kOfQueries ? pass.heads[0].state_is_zero : pass.heads[0].gradient_is_zero) = zero; }
  void run(const Chunk& chunk, int64_t index, bool outputs) {
    if constexpr (kOfQueries) {
      pass.run_queries(chunk, index, outputs, !outputs);
    } else {
      pass.run_keys(chunk, index, outputs, !outputs);
    }
  }
};

template <typename T>
double backward_segments(const Problem& problem, const BackwardTensors& tensors, const TokenPlan& plan, size_t sequence, int64_t head,
                         const Parallel& parallel) {
  const TokenList& tokens = plan.kept(sequence);
  const auto chunks = static_cast<size_t>(Chunk::count(tokens));
  Layout size;
  const BackwardWorker<T, true> sized(problem, tensors, sequence, head, nullptr, nullptr, size);
  const AlignedBytes corrections_memory = allocate_aligned(chunks * kChunk * sizeof(T));
  const AlignedBytes saved_memory = tensors.grad_decay == nullptr ? nullptr : allocate_aligned(chunks * sized.pass.heads[0].state.size() * sizeof(T));
  T* const corrections = reinterpret_cast<T*>(corrections_memory.get());
  T* const saved_states = reinterpret_cast<T*>(saved_memory.get());
  const AlignedBytes memory = allocate_aligned(size.used());
  std::memset(memory.get(), 0, size.used());
  Layout layout(memory.get());
  BackwardWorker<T, true> running(problem, tensors, sequence, head, corrections, saved_states, layout);
  running.pass.load_states();
  BackwardHead<T>& ends = running.pass.heads[0];
  const auto sweep = [&]<bool kOfQueries>(std::bool_constant<kOfQueries>) {
    const auto begin_worker = [&](const auto& run) {
      Layout own(thread_scratch(size.used()));
      BackwardWorker<T, kOfQueries> worker(problem, tensors, sequence, head, corrections, saved_states, own);
      run(worker);
    };
    return sweep_segments(Sweep{tokens, !kOfQueries}, ends.decay, kOfQueries ? ends.state : ends.gradient, parallel, begin_worker);
  };
  double grad_decay = sweep(std::true_type());
  grad_decay += sweep(std::false_type());
  running.pass.store_states();
  running.pass.clear_masked(plan.masked(sequence));
  return grad_decay;
}

template <typename T>
void backward_as(const Problem& problem, const BackwardTensors& tensors, const Parallel& parallel) {
  const TokenPlan plan(problem);
  const auto tasks = static_cast<int64_t>(problem.sequences.size()) * problem.heads;
  std::vector<double> grad_decay(static_cast<size_t>(tasks));
  run_heads(
      problem, plan, parallel, [&](int64_t heads, int64_t tokens) { return worth_segments(heads, tokens, parallel); },
      [&](size_t sequence, int64_t head) {
        const size_t task = sequence * static_cast<size_t>(problem.heads) + static_cast<size_t>(head);
        grad_decay[task] = backward_segments<T>(problem, tensors, plan, sequence, head, parallel);
      },
      [&](size_t sequence, int64_t begin, int64_t end) {
        const size_t task = sequence * static_cast<size_t>(problem.heads) + static_cast<size_t>(begin);
        backward_heads<T>(problem, tensors, plan, sequence, begin, end, grad_decay.data() + task);
      });
  if (tensors.grad_decay != nullptr) {
    for (int64_t head = 0; head < problem.heads; ++head) {
      double sum = 0;
      for (int64_t task = head; task < tasks; task += problem.heads) {
        sum += grad_decay[static_cast<size_t>(task)];
      }
      static_cast<T*>(tensors.grad_decay)[head] = static_cast<T>(sum);
    }
  }
}

void backward(const Problem& problem, const BackwardTensors& tensors, const Parallel& parallel) {
  if (problem.type == ElementType::kFloat64) {
    backward_as<double>(problem, tensors, parallel);
  } else {
    backward_as<float>(problem, tensors, parallel);
  }
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace g2c::kernels {

void linear_attention_backward(const Problem& problem, const BackwardTensors& tensors, const Parallel& parallel) {
  G2C_DISPATCH(backward)(problem, tensors, parallel);
}

}  // namespace g2c::kernels
#endif
