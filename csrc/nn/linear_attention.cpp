#include "nn/linear_attention.h"

#include "core/check.h"

namespace g2c::nn {

LinearAttentionImpl::LinearAttentionImpl(int64_t embedding_dim, int64_t num_heads, std::optional<std::string> form)
    : embedding_dim(embedding_dim), num_heads(num_heads), head_dim(0), form(std::move(form)) {
  check_heads("LinearAttention", embedding_dim, num_heads);
  if (this->form) {
    ops::parse_form("LinearAttention", *this->form);
  }
  head_dim = embedding_dim / num_heads;
  reset();
}

void LinearAttentionImpl::reset() {
  for (auto [name, projection] : {std::pair{"q_proj", &q_proj}, {"k_proj", &k_proj}, {"v_proj", &v_proj}, {"out_proj", &out_proj}}) {
    *projection = register_module(name, torch::nn::Linear(embedding_dim, embedding_dim));
  }
  gamma_logit = register_parameter("gamma_logit", torch::full({num_heads}, kInitialGammaLogit));
}

torch::Tensor LinearAttentionImpl::decay() const { return torch::sigmoid(gamma_logit.to(accumulate_type(gamma_logit.scalar_type()))); }

torch::Tensor LinearAttentionImpl::heads_last(const torch::Tensor& x) const { return x.unflatten(-1, {num_heads, head_dim}); }

torch::Tensor LinearAttentionImpl::forward(const torch::Tensor& x) {
  check_features("LinearAttention", x, 3, embedding_dim, gamma_logit);
  const auto chosen = form ? ops::parse_form("LinearAttention", *form) : ops::Form::kChunkwise;
  const auto [out, state] = ops::linear_attention(heads_last(q_proj(x)), heads_last(k_proj(x)), heads_last(v_proj(x)), decay(),
                                                  std::nullopt, chosen, {.normalize = true, .eps = kEps});
  return out_proj(out.flatten(-2));
}

std::pair<torch::Tensor, RecurrentState> LinearAttentionImpl::step(const torch::Tensor& x, const std::optional<RecurrentState>& state) {
  check_features("LinearAttention.step", x, 2, embedding_dim, gamma_logit);
  const auto before = state ? *state : init_state(x.size(0));
  const auto [out, after] = ops::linear_attention_step(heads_last(q_proj(x)), heads_last(k_proj(x)), heads_last(v_proj(x)), decay(), before,
                                                       {.normalize = true, .eps = kEps});
  return {out_proj(out.flatten(-2)), after};
}

RecurrentState LinearAttentionImpl::init_state(int64_t batch_size, std::optional<torch::Device> device) const {
  G2C_CHECK_VALUE(batch_size >= 0, "LinearAttention.init_state: batch_size must not be negative, got {}", batch_size);
  const auto options = gamma_logit.options()
                           .device(device.value_or(gamma_logit.device()))
                           .dtype(accumulate_type(gamma_logit.scalar_type()))
                           .requires_grad(false);
  return {torch::zeros({batch_size, num_heads, head_dim, head_dim}, options), torch::zeros({batch_size, num_heads, head_dim}, options)};
}

}  // namespace g2c::nn
