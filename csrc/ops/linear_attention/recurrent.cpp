#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include "core/check.h"
#include "ops/feature_map/feature_map.h"
#include "ops/linear_attention/internal.h"

// Token by token, as the definition reads.
namespace g2c::ops::detail {
namespace {

// S (B, H, dk, dv) and z (B, H, dk) move on by one token, given phi(q), phi(k) (B, H, dk), v (B, H, dv) and gamma (H, 1); returns
// phi(q) S (B, H, dv) and phi(q) . z (B, H). The cost is that of reading and writing the state, whatever the length of the past.
std::pair<at::Tensor, at::Tensor> advance(const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v, const at::Tensor& gamma,
                                          at::Tensor& S, at::Tensor& z) {
  // Written before it is read: a token attends to itself.
  S = (S * gamma.unsqueeze(-1)).addcmul_(phi_k.unsqueeze(-1), v.unsqueeze(-2));
  z = (z * gamma).add_(phi_k);
  const auto row = phi_q.unsqueeze(-2);  // (B, H, 1, dk)
  return {at::matmul(row, S).squeeze(-2), at::matmul(row, z.unsqueeze(-1)).squeeze(-1).squeeze(-1)};
}

Output step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
            const at::Tensor& z, bool normalize, double eps) {
  check_inputs("linear_attention_step", 0, q, k, v, decay, S, z);
  const auto type = accumulate_type(q.scalar_type());
  auto S_next = S;
  auto z_next = z;
  auto [out, divisor] = advance(feature_map(q.to(type)), feature_map(k.to(type)), v.to(type), decay.to(type).unsqueeze(-1), S_next, z_next);
  if (normalize) {
    out.div_(divisor.add_(eps).unsqueeze(-1));
  }
  return {out.to(q.scalar_type()), S_next, z_next};
}

OutputWithNormalizer recurrent(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                               const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps) {
  check_inputs("linear_attention_recurrent", 1, q, k, v, decay, initial_S, initial_z);
  const auto type = accumulate_type(q.scalar_type());
  const auto phi_q = feature_map(q.to(type));
  const auto phi_k = feature_map(k.to(type));
  const auto values = v.to(type);
  const auto gamma = decay.to(type).unsqueeze(-1);
  auto [S, z] = split_state(joined_or_zeros(initial_S, initial_z, k, v));
  auto out = at::empty(v.sizes(), v.options());
  auto normalizer = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(type));
  for (int64_t t = 0; t < q.size(1); ++t) {
    const auto [sums, divisor] = advance(phi_q.select(1, t), phi_k.select(1, t), values.select(1, t), gamma, S, z);
    divisor.add_(eps);
    normalizer.select(1, t).copy_(divisor);
    out.select(1, t).copy_(normalize ? sums / divisor.unsqueeze(-1) : sums);
  }
  return {out, S, z, normalizer};
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, CompositeExplicitAutograd, m) {
  m.impl("linear_attention_step", TORCH_FN(step));
  m.impl("linear_attention_recurrent", TORCH_FN(recurrent));
}

}  // namespace g2c::ops::detail
