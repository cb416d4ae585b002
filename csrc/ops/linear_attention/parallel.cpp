#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

#include "core/check.h"
#include "ops/feature_map/feature_map.h"
#include "ops/linear_attention/internal.h"

// The readable reference: every pair of tokens is scored, T x T per head. Quadratic in time and memory; differentiable op by op, twice too.
namespace g2c::ops::detail {
namespace {

Output parallel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const OptionalTensor& initial_S,
                const OptionalTensor& initial_z, bool normalize, double eps) {
  check_inputs("linear_attention_parallel", 1, q, k, v, decay, initial_S, initial_z);
  const auto type = accumulate_type(q.scalar_type());
  const auto phi_q = feature_map(q.to(type)).transpose(1, 2);      // (B, H, T, dk)
  const auto phi_k = feature_map(k.to(type)).transpose(1, 2);      // (B, H, T, dk)
  const auto values = with_ones(v.to(type)).transpose(1, 2);       // (B, H, T, dv + 1)
  const auto state = joined_or_zeros(initial_S, initial_z, k, v);  // (B, H, dk, dv + 1)
  const DecayPowers powers(decay.to(type), q.size(1), /*derivative=*/false);

  // A sequence is one chunk here. Each weight is phi(q_t) . phi(k_i) decay^(t - i), and 0 for i > t: the future is masked.
  const auto weights = at::matmul(phi_q, phi_k.transpose(-1, -2)) * powers.within.squeeze(1);               // (B, H, T, T)
  const auto read = at::matmul(weights, values) + at::matmul(phi_q, state) * powers.from_start.squeeze(1);  // (B, H, T, dv + 1)
  const auto written = at::matmul((phi_k * powers.to_end.squeeze(1)).transpose(-1, -2), values);            // (B, H, dk, dv + 1)
  const auto final_state = split_state(state * powers.whole + written);

  const auto dv = v.size(-1);
  auto out = read.narrow(-1, 0, dv);  // (B, H, T, dv)
  if (normalize) {
    out = out / (read.narrow(-1, dv, 1) + eps);
  }
  return {out.transpose(1, 2).to(q.scalar_type()).contiguous(), final_state.S, final_state.z};
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, CompositeImplicitAutograd, m) { m.impl("linear_attention_parallel", TORCH_FN(parallel)); }

}  // namespace g2c::ops::detail
