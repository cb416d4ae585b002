#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/step.cpp"
#include <hwy/foreach_target.h>

#include "kernels/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

void step(const Problem& problem, const StepTensors& tensors, const Parallel& parallel) {
  // Waking threads takes longer than a pass over a state of this size.
  constexpr int64_t kWorthThreads = int64_t{1} << 17;
  const int64_t heads = tensors.batch * problem.heads;
  const auto body = [&](int64_t begin, int64_t end) {
    if (problem.type == ElementType::kFloat64) {
      step_heads<double>(problem, tensors, begin, end);
    } else {
      step_heads<float>(problem, tensors, begin, end);
    }
  };
  if (heads * problem.key_dim * problem.value_dim < kWorthThreads) {
    body(0, heads);
  } else {
    run_parallel(parallel, heads, body);
  }
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace g2c::kernels {

void linear_attention_step(const Problem& problem, const StepTensors& tensors, const Parallel& parallel) {
  G2C_DISPATCH(step)(problem, tensors, parallel);
}

}  // namespace g2c::kernels
#endif
