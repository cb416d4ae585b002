#include <utility>
#include <vector>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward.cpp"
#include <hwy/foreach_target.h>

#include "kernels/forward-inl.h"
#include "kernels/segments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

template <typename T>
void forward_heads(const Problem& problem, const ForwardTensors& tensors, const TokenPlan& plan, size_t sequence, int64_t begin, int64_t end) {
  Layout size;
  ForwardPass<T>(problem, tensors, sequence, begin, end, size);
  Layout layout(thread_scratch(size.used()));
  ForwardPass<T> pass(problem, tensors, sequence, begin, end, layout);
  pass.load_states();
  const TokenList& tokens = plan.kept(sequence);
  const int64_t chunks = Chunk::count(tokens);
  for (int64_t c = 0; c < chunks; ++c) {
    pass.run(Chunk(tokens, c), true, c + 1 < chunks || tensors.final_S != nullptr);
  }
  pass.store_states();
  pass.clear_masked(plan.masked(sequence));
}

// A thread's part in sweep_segments.
template <typename T>
class ForwardWorker {
 public:
  ForwardWorker(const Problem& problem, const ForwardTensors& tensors, size_t sequence, int64_t head, Layout& layout)
      : pass(problem, tensors, sequence, head, head + 1, layout) {}

  State<T>& state() { return pass.heads[0].state; }
  void clear_state() {
    state().clear();
    pass.heads[0].state_is_zero = true;
  }
  void advance(const Chunk& chunk, int64_t) { pass.run(chunk, false, true); }
  void write(const Chunk& chunk, int64_t) {
    pass.heads[0].state_is_zero = false;
    pass.run(chunk, true, false);
  }
  double contribution() const { return 0; }

  ForwardPass<T> pass;
};

template <typename T>
void forward_segments(const Problem& problem, const ForwardTensors& tensors, const TokenPlan& plan, size_t sequence, int64_t head,
                      const Parallel& parallel) {
  Layout size;
  ForwardWorker<T>(problem, tensors, sequence, head, size);
  const auto begin_worker = [&](const auto& run) {
    Layout layout(thread_scratch(size.used()));
    ForwardWorker<T> worker(problem, tensors, sequence, head, layout);
    run(worker);
  };
  const AlignedBytes memory = allocate_aligned(size.used());
  std::memset(memory.get(), 0, size.used());
  Layout layout(memory.get());
  ForwardWorker<T> running(problem, tensors, sequence, head, layout);
  running.pass.load_states();
  sweep_segments(Sweep{plan.kept(sequence), false}, running.pass.heads[0].decay, running.state(), parallel, begin_worker);
  running.pass.store_states();
  running.pass.clear_masked(plan.masked(sequence));
}

template <typename T>
void forward_as(const Problem& problem, const ForwardTensors& tensors, const Parallel& parallel) {
  const TokenPlan plan(problem);
  run_heads(
      problem, plan, parallel, [&](int64_t tasks, int64_t tokens) { return worth_segments(tasks, tokens, parallel); },
      [&](size_t sequence, int64_t head) { forward_segments<T>(problem, tensors, plan, sequence, head, parallel); },
      [&](size_t sequence, int64_t begin, int64_t end) { forward_heads<T>(problem, tensors, plan, sequence, begin, end); });
}

void forward(const Problem& problem, const ForwardTensors& tensors, const Parallel& parallel) {
  if (problem.type == ElementType::kFloat64) {
    forward_as<double>(problem, tensors, parallel);
  } else {
    forward_as<float>(problem, tensors, parallel);
  }
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace g2c::kernels {

void linear_attention_forward(const Problem& problem, const ForwardTensors& tensors, const Parallel& parallel) {
  G2C_DISPATCH(forward)(problem, tensors, parallel);
}

}  // namespace g2c::kernels
#endif
