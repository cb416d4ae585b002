#include "nn/multi_head_attention.h"

#include <cmath>
#include <limits>

#include "core/check.h"
#include "nn/heads.h"

namespace g2c::nn {

MultiHeadAttentionImpl::MultiHeadAttentionImpl(int64_t embedding_dim, int64_t num_heads, bool causal)
    : embedding_dim(embedding_dim), num_heads(num_heads), head_dim(0), causal(causal) {
  check_heads("MultiHeadAttention", embedding_dim, num_heads);
  head_dim = embedding_dim / num_heads;
  reset();
}

void MultiHeadAttentionImpl::reset() {
  for (auto [name, projection] : {std::pair{"q_proj", &q_proj}, {"k_proj", &k_proj}, {"v_proj", &v_proj}, {"out_proj", &out_proj}}) {
    *projection = register_module(name, torch::nn::Linear(embedding_dim, embedding_dim));
  }
}

torch::Tensor MultiHeadAttentionImpl::forward(const torch::Tensor& x) {
  check_features("MultiHeadAttention", x, 3, embedding_dim, q_proj->weight);
  const auto read = torch::scaled_dot_product_attention(split_heads(q_proj(x), num_heads), split_heads(k_proj(x), num_heads),
                                                        split_heads(v_proj(x), num_heads), std::nullopt, 0.0, causal);
  return out_proj(merge_heads(read));
}

torch::Tensor MultiHeadAttentionImpl::attention_weights(const torch::Tensor& x) {
  check_features("MultiHeadAttention.attention_weights", x, 3, embedding_dim, q_proj->weight);
  const auto scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  auto scores = torch::matmul(split_heads(q_proj(x), num_heads), split_heads(k_proj(x), num_heads).transpose(-1, -2)) * scale;
  if (causal) {
    const auto future = torch::ones({x.size(1), x.size(1)}, x.options().dtype(torch::kBool)).triu(1);
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
  }
  return torch::softmax(scores, -1);
}

std::pair<torch::Tensor, LayerKVCache> MultiHeadAttentionImpl::forward_cached(const torch::Tensor& x, LayerKVCache cache) {
  check_features("MultiHeadAttention.forward_cached", x, 3, embedding_dim, q_proj->weight);
  G2C_CHECK_VALUE(x.size(1) == 1, "MultiHeadAttention.forward_cached: x must hold one token, (B, 1, D), got {}", shape_of(x));
  G2C_CHECK_VALUE(causal, "MultiHeadAttention.forward_cached: only causal attention can be cached, this one has causal=False");
  cache.append(split_heads(k_proj(x), num_heads), split_heads(v_proj(x), num_heads));
  const auto read = torch::scaled_dot_product_attention(split_heads(q_proj(x), num_heads), cache.keys(), cache.values());
  return {out_proj(merge_heads(read)), std::move(cache)};
}

}  // namespace g2c::nn
