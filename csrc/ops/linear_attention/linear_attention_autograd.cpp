#include <ATen/FuncTorchTLS.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "ops/linear_attention/internal.h"

// As in ATen/functorch/DynamicLayer.h, which itself includes a header that the wheels don't ship.
namespace at::functorch {
TORCH_API void setSingleLevelAutogradFunctionAllowed(bool allowed);
TORCH_API bool getSingleLevelAutogradFunctionAllowed();
}  // namespace at::functorch

namespace g2c::ops::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor undefined_if_absent(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

OptionalTensor absent_if_undefined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// Under torch.func the dispatcher calls an Autograd kernel once per level, so at each call there is a single level to record; torch
// must be told, since it refuses C++ autograd functions there otherwise.
class SingleLevel {
 public:
  SingleLevel() : before_(at::functorch::functorchTLSAccessor() && at::functorch::getSingleLevelAutogradFunctionAllowed()) { allow(true); }
  ~SingleLevel() { allow(before_); }
  SingleLevel(const SingleLevel&) = delete;
  SingleLevel& operator=(const SingleLevel&) = delete;

 private:
  static void allow(bool allowed) {
    if (at::functorch::functorchTLSAccessor()) {
      at::functorch::setSingleLevelAutogradFunctionAllowed(allowed);
    }
  }
  bool before_;
};

constexpr int64_t kRecurrent = 0;  // in place of a chunk size

// Chunkwise and recurrent form share the backward pass: what it needs of the forward pass is the same in both.
class SequenceFunction : public torch::autograd::Function<SequenceFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Variable& q, const Variable& k, const Variable& v, const Variable& decay,
                               const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                               int64_t chunk_size) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, S, z, normalizer] = chunk_size == kRecurrent
                                       ? recurrent_op().call(q, k, v, decay, initial_S, initial_z, normalize, eps)
                                       : chunkwise_op().call(q, k, v, decay, initial_S, initial_z, normalize, eps, chunk_size);
    ctx->save_for_backward({q, k, v, decay, undefined_if_absent(initial_S), undefined_if_absent(initial_z), out, normalizer});
    ctx->saved_data["normalize"] = normalize;
    ctx->saved_data["chunk_size"] = chunk_size == kRecurrent ? kDefaultChunkSize : chunk_size;
    ctx->mark_non_differentiable({normalizer});
    ctx->set_materialize_grads(false);
    return {out, S, z, normalizer};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto initial_S = absent_if_undefined(saved[4]);
    auto [q, k, v, decay, S, z] = chunkwise_backward_op().call(
        absent_if_undefined(grads[0]), absent_if_undefined(grads[1]), absent_if_undefined(grads[2]), saved[0], saved[1], saved[2],
        saved[3], initial_S, absent_if_undefined(saved[5]), saved[6], saved[7], ctx->saved_data["normalize"].toBool(),
        ctx->saved_data["chunk_size"].toInt());
    if (!initial_S) {
      S = z = at::Tensor();
    }
    return {q, k, v, decay, S, z, Variable(), Variable(), Variable()};
  }
};

// The gradients carry this node, so that differentiating them again fails with a sentence instead of a wrong number.
class BackwardOnce : public torch::autograd::Function<BackwardOnce> {
 public:
  static variable_list forward(AutogradContext*, const OptionalTensor& grad_out, const OptionalTensor& grad_S,
                               const OptionalTensor& grad_z, const Variable& q, const Variable& k, const Variable& v,
                               const Variable& decay, const OptionalTensor& initial_S, const OptionalTensor& initial_z,
                               const Variable& out, const Variable& normalizer, bool normalize, int64_t chunk_size) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [dq, dk, dv, ddecay, dS, dz] = chunkwise_backward_op().call(grad_out, grad_S, grad_z, q, k, v, decay, initial_S, initial_z, out,
                                                                     normalizer, normalize, chunk_size);
    return {dq, dk, dv, ddecay, dS, dz};
  }

  static variable_list backward(AutogradContext*, const variable_list&) {
    G2C_CHECK_IMPLEMENTED(false, "linear_attention: the chunkwise and recurrent forms have no second derivative; form='parallel' has");
  }
};

OutputWithNormalizer chunkwise_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                        const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                                        int64_t chunk_size) {
  const SingleLevel single_level;
  const auto result = SequenceFunction::apply(q, k, v, decay, initial_S, initial_z, normalize, eps, chunk_size);
  return {result[0], result[1], result[2], result[3]};
}

OutputWithNormalizer recurrent_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                        const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps) {
  const SingleLevel single_level;
  const auto result = SequenceFunction::apply(q, k, v, decay, initial_S, initial_z, normalize, eps, kRecurrent);
  return {result[0], result[1], result[2], result[3]};
}

Gradients chunkwise_backward_autograd(const OptionalTensor& grad_out, const OptionalTensor& grad_S, const OptionalTensor& grad_z,
                                      const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                      const OptionalTensor& initial_S, const OptionalTensor& initial_z, const at::Tensor& out,
                                      const at::Tensor& normalizer, bool normalize, int64_t chunk_size) {
  const SingleLevel single_level;
  const auto result = BackwardOnce::apply(grad_out, grad_S, grad_z, q, k, v, decay, initial_S, initial_z, out, normalizer, normalize,
                                          chunk_size);
  return {result[0], result[1], result[2], result[3], result[4], result[5]};
}

// A step that autograd watches is a sequence of one token: the same backward pass serves both.
Output step_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
                     const at::Tensor& z, bool normalize, double eps) {
  const auto watched = [](const auto&... tensors) { return at::GradMode::is_enabled() && (tensors.requires_grad() || ...); };
  if (watched(q, k, v, decay, S, z)) {
    check_inputs("linear_attention_step", 0, q, k, v, decay, S, z);
    auto [out, S_next, z_next, normalizer] =
        chunkwise_op().call(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), decay, S, z, normalize, eps, /*chunk_size=*/1);
    return {out.squeeze(1), S_next, z_next};
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return step_op().call(q, k, v, decay, S, z, normalize, eps);
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, Autograd, m) {
  m.impl("linear_attention_recurrent", TORCH_FN(recurrent_autograd));
  m.impl("linear_attention_chunkwise", TORCH_FN(chunkwise_autograd));
  m.impl("linear_attention_chunkwise_backward", TORCH_FN(chunkwise_backward_autograd));
  m.impl("linear_attention_step", TORCH_FN(step_autograd));
}

}  // namespace g2c::ops::detail
