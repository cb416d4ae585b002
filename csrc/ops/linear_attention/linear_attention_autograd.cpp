#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "core/check.h"
#include "ops/linear_attention/internal.h"

// Autograd nodes, as torch's own ops have them. torch::autograd::Function would make such a node too, but refuses to work under torch.func.
namespace g2c::ops::detail {
namespace {

using torch::autograd::collect_next_edges;
using torch::autograd::compute_requires_grad;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::set_history;
using torch::autograd::variable_list;

// Nodes are held by std::shared_ptr or c10::intrusive_ptr, depending on torch's version.
using NodePointer = decltype(torch::autograd::Edge::function);

template <typename T, typename Pointer = NodePointer>
auto make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return std::make_shared<T>();
  } else {
    return c10::make_intrusive<T>();
  }
}

template <typename T, typename Pointer = NodePointer>
Pointer pointer_to(T& node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return node.shared_from_this();
  } else {
    return Pointer::reclaim_copy(&node);
  }
}

constexpr int64_t kRecurrent = 0;  // in place of a chunk size

at::Tensor undefined_if_absent(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

OptionalTensor absent_if_undefined(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

// The backward pass of the chunkwise and the recurrent form: what it needs of the forward pass is the same in both.
struct SequenceBackward : public Node {
  variable_list apply(variable_list&& grads) override {
    const auto self = pointer_to(*this);
    const auto initial_S = absent_if_undefined(S.unpack());
    auto [dq, dk, dv, ddecay, dS, dz] = chunkwise_backward_op().call(
        absent_if_undefined(grads[0]), absent_if_undefined(grads[1]), absent_if_undefined(grads[2]), q.unpack(), k.unpack(), v.unpack(),
        decay.unpack(), initial_S, absent_if_undefined(z.unpack()), out.unpack(self), normalizer.unpack(self), normalize, chunk_size);
    if (!initial_S) {
      return {dq, dk, dv, ddecay, at::Tensor(), at::Tensor()};
    }
    return {dq, dk, dv, ddecay, dS, dz};
  }
  std::string name() const override { return "LinearAttentionBackward"; }
  void release_variables() override {
    for (auto* saved : {&q, &k, &v, &decay, &S, &z, &out, &normalizer}) {
      saved->reset_data();
    }
  }

  SavedVariable q, k, v, decay, S, z, out, normalizer;
  bool normalize = true;
  int64_t chunk_size = kDefaultChunkSize;
};

// The gradients carry this node, so that differentiating them again fails with a sentence instead of a wrong number.
struct NoSecondDerivative : public Node {
  variable_list apply(variable_list&&) override {
    G2C_CHECK_IMPLEMENTED(false, "linear_attention: the chunkwise and recurrent forms have no second derivative; form='parallel' has");
  }
  std::string name() const override { return "LinearAttentionNoSecondDerivative"; }
};

OutputWithNormalizer sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                              const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                              int64_t chunk_size) {
  const auto S_0 = undefined_if_absent(initial_S);
  const auto z_0 = undefined_if_absent(initial_z);
  decltype(make_node<SequenceBackward>()) node;
  if (compute_requires_grad(q, k, v, decay, S_0, z_0)) {
    node = make_node<SequenceBackward>();
    node->set_next_edges(collect_next_edges(q, k, v, decay, S_0, z_0));
    const auto save = [](const at::Tensor& x) { return SavedVariable(x, /*is_output=*/false); };
    node->q = save(q);
    node->k = save(k);
    node->v = save(v);
    node->decay = save(decay);
    node->S = save(S_0);
    node->z = save(z_0);
    node->normalize = normalize;
    node->chunk_size = chunk_size == kRecurrent ? kDefaultChunkSize : chunk_size;
  }
  auto [out, S, z, normalizer] = [&] {
    at::AutoDispatchBelowADInplaceOrView below;
    return chunk_size == kRecurrent ? recurrent_op().call(q, k, v, decay, initial_S, initial_z, normalize, eps)
                                    : chunkwise_op().call(q, k, v, decay, initial_S, initial_z, normalize, eps, chunk_size);
  }();
  if (node) {
    set_history(variable_list{out, S, z}, node);
    node->out = SavedVariable(out, /*is_output=*/true);
    node->normalizer = SavedVariable(normalizer, /*is_output=*/false);
  }
  return {out, S, z, normalizer};
}

OutputWithNormalizer recurrent_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                        const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps) {
  return sequence(q, k, v, decay, initial_S, initial_z, normalize, eps, kRecurrent);
}

OutputWithNormalizer chunkwise_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                        const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                                        int64_t chunk_size) {
  check_positive("linear_attention_chunkwise", "chunk_size", chunk_size);
  return sequence(q, k, v, decay, initial_S, initial_z, normalize, eps, chunk_size);
}

Gradients chunkwise_backward_autograd(const OptionalTensor& grad_out, const OptionalTensor& grad_S, const OptionalTensor& grad_z,
                                      const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                      const OptionalTensor& initial_S, const OptionalTensor& initial_z, const at::Tensor& out,
                                      const at::Tensor& normalizer, bool normalize, int64_t chunk_size) {
  auto result = [&] {
    at::AutoDispatchBelowADInplaceOrView below;
    return chunkwise_backward_op().call(grad_out, grad_S, grad_z, q, k, v, decay, initial_S, initial_z, out, normalizer, normalize,
                                        chunk_size);
  }();
  const auto given = [](const auto&... tensors) { return variable_list{undefined_if_absent(tensors)...}; };
  const auto inputs = given(grad_out, grad_S, grad_z, q, k, v, decay, initial_S, initial_z);
  if (compute_requires_grad(inputs)) {
    const NodePointer node = make_node<NoSecondDerivative>();
    node->set_next_edges(collect_next_edges(inputs));
    std::apply([&](const auto&... gradients) { set_history(variable_list{gradients...}, node); }, result);
  }
  return result;
}

// A step that autograd watches is a sequence of one token: the same backward pass serves both.
Output step_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
                     const at::Tensor& z, bool normalize, double eps) {
  if (compute_requires_grad(q, k, v, decay, S, z)) {
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
