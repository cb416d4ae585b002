#include "nn/block.h"

#include "core/check.h"

namespace g2c::nn {

AttentionKind parse_kind(const char* op, const std::string& name) {
  G2C_CHECK_VALUE(name == "full" || name == "linear", "{}: kind must be 'full' or 'linear', got '{}'", op, name);
  return name == "full" ? AttentionKind::kFull : AttentionKind::kLinear;
}

BlockImpl::BlockImpl(int64_t embedding_dim, int64_t num_heads, std::string kind, std::optional<int64_t> hidden_dim)
    : embedding_dim(embedding_dim), num_heads(num_heads), hidden_dim(hidden_dim.value_or(4 * embedding_dim)), kind(std::move(kind)) {
  check_heads("HybridBlock", embedding_dim, num_heads);
  parse_kind("HybridBlock", this->kind);
  reset();
}

void BlockImpl::reset() {
  const auto norm = [&] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({embedding_dim})); };
  ln1 = register_module("ln1", norm());
  if (parse_kind("HybridBlock", kind) == AttentionKind::kFull) {
    full_attention = register_module("attn", MultiHeadAttention(embedding_dim, num_heads));
  } else {
    linear_attention = register_module("attn", LinearAttention(embedding_dim, num_heads));
  }
  ln2 = register_module("ln2", norm());
  ffn = register_module("ffn", FeedForward(embedding_dim, hidden_dim));
}

torch::Tensor BlockImpl::add_feed_forward(const torch::Tensor& x) { return x + ffn(ln2(x)); }

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  check_features("HybridBlock", x, 3, embedding_dim, ln1->weight);
  const auto normed = ln1(x);
  return add_feed_forward(x + (full_attention ? full_attention(normed) : linear_attention(normed)));
}

LayerState BlockImpl::init_state(int64_t batch_size, std::optional<torch::Device> device) const {
  if (full_attention) {
    return LayerKVCache();
  }
  return linear_attention->init_state(batch_size, device);
}

std::pair<torch::Tensor, LayerState> BlockImpl::step(const torch::Tensor& x, const LayerState& state) {
  check_features("HybridBlock.step", x, 2, embedding_dim, ln1->weight);
  const auto normed = ln1(x);
  if (full_attention) {
    const auto* cache = std::get_if<LayerKVCache>(&state);
    G2C_CHECK_VALUE(cache != nullptr, "HybridBlock.step: a full layer needs a LayerKVCache as its state, got (S, z)");
    auto [read, longer] = full_attention->forward_cached(normed.unsqueeze(1), *cache);
    return {add_feed_forward(x + read.squeeze(1)), std::move(longer)};
  }
  const auto* recurrent = std::get_if<RecurrentState>(&state);
  G2C_CHECK_VALUE(recurrent != nullptr, "HybridBlock.step: a linear layer needs (S, z) as its state, got a LayerKVCache");
  auto [read, next] = linear_attention->step(normed, *recurrent);
  return {add_feed_forward(x + read), std::move(next)};
}

}  // namespace g2c::nn
