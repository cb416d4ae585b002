#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/check.h"
#include "ops/linear_attention/internal.h"

// Shapes alone, symbolic ones too: for meta and fake tensors, torch.export and torch.compile.
namespace g2c::ops::detail {
namespace {

at::Tensor empty_of(c10::SymIntArrayRef sizes, const at::Tensor& like, at::ScalarType type) {
  return at::empty_symint(sizes, like.options().dtype(type));
}

OutputWithNormalizer recurrent_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                    const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool, double) {
  check_inputs("linear_attention_recurrent", 1, q, k, v, decay, initial_S, initial_z);
  const auto type = accumulate_type(q.scalar_type());
  const auto B = q.sym_size(0), T = q.sym_size(1), H = q.sym_size(2), dk = q.sym_size(3), dv = v.sym_size(3);
  return {empty_of(v.sym_sizes(), v, v.scalar_type()), empty_of({B, H, dk, dv}, q, type), empty_of({B, H, dk}, q, type),
          empty_of({B, T, H}, q, type)};
}

OutputWithNormalizer chunkwise_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                    const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                                    int64_t chunk_size) {
  check_positive("linear_attention_chunkwise", "chunk_size", chunk_size);
  return recurrent_meta(q, k, v, decay, initial_S, initial_z, normalize, eps);
}

Gradients chunkwise_backward_meta(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const OptionalTensor&,
                                  const OptionalTensor&, const at::Tensor&, const at::Tensor&, bool, int64_t) {
  const auto type = accumulate_type(q.scalar_type());
  const auto B = q.sym_size(0), H = q.sym_size(2), dk = q.sym_size(3), dv = v.sym_size(3);
  const auto like = [](const at::Tensor& x) { return at::empty_like(x, at::MemoryFormat::Contiguous); };
  return {like(q), like(k), like(v), like(decay), empty_of({B, H, dk, dv}, q, type), empty_of({B, H, dk}, q, type)};
}

Output step_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
                 const at::Tensor& z, bool, double) {
  check_inputs("linear_attention_step", 0, q, k, v, decay, S, z);
  return {empty_of(v.sym_sizes(), v, v.scalar_type()), empty_of(S.sym_sizes(), S, S.scalar_type()),
          empty_of(z.sym_sizes(), z, z.scalar_type())};
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, Meta, m) {
  m.impl("linear_attention_recurrent", TORCH_FN(recurrent_meta));
  m.impl("linear_attention_chunkwise", TORCH_FN(chunkwise_meta));
  m.impl("linear_attention_chunkwise_backward", TORCH_FN(chunkwise_backward_meta));
  m.impl("linear_attention_step", TORCH_FN(step_meta));
}

}  // namespace g2c::ops::detail
