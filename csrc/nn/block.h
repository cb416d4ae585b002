#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/normalization.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "nn/feed_forward.h"
#include "nn/linear_attention.h"
#include "nn/multi_head_attention.h"

namespace g2c::nn {

enum class AttentionKind { kFull, kLinear };

// "full" or "linear"; anything else is a ValueError that starts with `op`.
AttentionKind parse_kind(const char* op, const std::string& name);

// What one layer remembers: (S, z) of linear attention, or all keys and values of full attention.
using LayerState = std::variant<RecurrentState, LayerKVCache>;

// Pre-norm residual block: x + attn(ln1(x)), then x + ffn(ln2(x)); attention of either kind.
class BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  BlockImpl(int64_t embedding_dim, int64_t num_heads, std::string kind = "full", std::optional<int64_t> hidden_dim = std::nullopt);
  void reset() override;

  torch::Tensor forward(const torch::Tensor& x);  // (B, T, D) -> (B, T, D)

  LayerState init_state(int64_t batch_size, std::optional<torch::Device> device = std::nullopt) const;
  std::pair<torch::Tensor, LayerState> step(const torch::Tensor& x, const LayerState& state);  // (B, D) -> (B, D)

  int64_t embedding_dim, num_heads, hidden_dim;
  std::string kind;
  torch::nn::LayerNorm ln1{nullptr}, ln2{nullptr};
  // The one that `kind` names; the other is empty. Both are registered under the name "attn".
  MultiHeadAttention full_attention{nullptr};
  LinearAttention linear_attention{nullptr};
  FeedForward ffn{nullptr};

 private:
  torch::Tensor add_feed_forward(const torch::Tensor& x);
};
TORCH_MODULE(Block);

}  // namespace g2c::nn
