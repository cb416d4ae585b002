#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include "core/check.h"
#include "ops/feature_map/feature_map.h"
#include "ops/linear_attention/internal.h"

// Token by token, as the definition reads.
namespace g2c::ops::detail {
namespace {

// The cost is that of reading and writing the state, whatever the length of the past.
Output step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
            const at::Tensor& z, bool normalize, double eps) {
  check_inputs("linear_attention_step", 0, q, k, v, decay, S, z);
  const auto type = accumulate_type(q.scalar_type());
  const auto phi_q = feature_map(q.to(type)).unsqueeze(-2);  // (B, H, 1, dk)
  const auto phi_k = feature_map(k.to(type)).unsqueeze(-1);  // (B, H, dk, 1)
  const auto gamma = decay.to(type).view({-1, 1, 1});        // (H, 1, 1)
  // Written before it is read: a token attends to itself.
  auto S_next = (S * gamma).addcmul_(phi_k, v.to(type).unsqueeze(-2));
  auto z_next = (z * gamma.squeeze(-1)).add_(phi_k.squeeze(-1));
  auto out = at::matmul(phi_q, S_next);  // (B, H, 1, dv)
  if (normalize) {
    out.div_(at::matmul(phi_q, z_next.unsqueeze(-1)).add_(eps));
  }
  return {out.squeeze(-2).to(q.scalar_type()), S_next, z_next};
}

Output recurrent(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const OptionalTensor& initial_S,
                 const OptionalTensor& initial_z, bool normalize, double eps) {
  check_inputs("linear_attention_recurrent", 1, q, k, v, decay, initial_S, initial_z);
  // A copy even without a token to read: what an op returns shares no memory with what it was given.
  auto [S, z] = split_state(joined_or_zeros(initial_S, initial_z, k, v));
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < q.size(1); ++t) {
    auto [out, S_next, z_next] = step_op().call(q.select(1, t), k.select(1, t), v.select(1, t), decay, S, z, normalize, eps);
    outputs.push_back(std::move(out));
    S = std::move(S_next);
    z = std::move(z_next);
  }
  // Of no tokens: empty, yet hung on q, k and v, so that a backward pass finds its way.
  const auto none = [&] { return v * (q.sum(-1, /*keepdim=*/true) + k.sum(-1, /*keepdim=*/true)); };
  return {outputs.empty() ? none() : at::stack(outputs, 1), S, z};
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, CompositeExplicitAutograd, m) {
  m.impl("linear_attention_step", TORCH_FN(step));
}

TORCH_LIBRARY_IMPL(g2c, CompositeImplicitAutograd, m) {
  m.impl("linear_attention_recurrent", TORCH_FN(recurrent));
}

}  // namespace g2c::ops::detail
