#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <tuple>

#include "nn/kv_cache.h"

namespace g2c::nn {

// Softmax attention over all tokens, scores scaled by 1/sqrt(d) (Vaswani et al. 2017, arXiv:1706.03762).
class MultiHeadAttentionImpl : public torch::nn::Cloneable<MultiHeadAttentionImpl> {
 public:
  MultiHeadAttentionImpl(int64_t embedding_dim, int64_t num_heads, bool causal = true);
  void reset() override;

  torch::Tensor forward(const torch::Tensor& x);            // (B, T, D) -> (B, T, D)
  torch::Tensor attention_weights(const torch::Tensor& x);  // (B, T, D) -> (B, H, T, T), rows sum to 1

  // One new token, (B, 1, D) -> (B, 1, D), that attends to all tokens in the cache and itself. The given cache is left as it is.
  std::pair<torch::Tensor, LayerKVCache> forward_cached(const torch::Tensor& x, LayerKVCache cache);

  int64_t embedding_dim, num_heads, head_dim;
  bool causal;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
};
TORCH_MODULE(MultiHeadAttention);

}  // namespace g2c::nn
