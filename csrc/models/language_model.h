#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/normalization.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/block.h"
#include "nn/embeddings.h"

namespace g2c::models {

// Everything a language model needs to go on after the tokens it has seen.
struct HybridState {
  std::vector<nn::LayerState> layers;
  int64_t batch_size = 0;
  int64_t position = 0;  // tokens seen; the next one gets this position

  HybridState clone() const;  // in memory of its own
};

// Token and learned positional embeddings, pre-norm blocks after `layer_pattern` ("full", "linear"), a final layer norm, and logits
// from the token embedding transposed plus head_bias.
class HybridTransformerLMImpl : public torch::nn::Cloneable<HybridTransformerLMImpl> {
 public:
  HybridTransformerLMImpl(int64_t vocab_size, int64_t embedding_dim, std::vector<std::string> layer_pattern, int64_t num_heads,
                          int64_t max_seq_len, std::optional<int64_t> hidden_dim = std::nullopt);
  void reset() override;

  torch::Tensor forward(const torch::Tensor& ids);  // (B, T) int64 -> (B, T, V)

  HybridState init_state(int64_t batch_size, std::optional<torch::Device> device = std::nullopt) const;

  // One token per row, (B,) -> logits (B, V) and the state after it. The given state is left as it is.
  std::pair<torch::Tensor, HybridState> forward_step(const torch::Tensor& ids, const HybridState& state);

  int64_t num_layers() const { return static_cast<int64_t>(layer_pattern.size()); }

  int64_t vocab_size, embedding_dim, num_heads, max_seq_len, hidden_dim;
  std::vector<std::string> layer_pattern;
  nn::TokenEmbedding token_embedding{nullptr};
  nn::LearnedPositionalEmbedding position_embedding{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::LayerNorm final_norm{nullptr};
  torch::Tensor head_bias;  // (V,)

 private:
  nn::BlockImpl& block(size_t index) const;
  torch::Tensor logits(const torch::Tensor& x);
  void check_state(const HybridState& state, int64_t batch_size) const;
};
TORCH_MODULE(HybridTransformerLM);

// The same with full attention in every layer, and a plain KV cache as its state.
class TransformerLMImpl : public HybridTransformerLMImpl {
 public:
  TransformerLMImpl(int64_t vocab_size, int64_t embedding_dim, int64_t num_layers, int64_t num_heads, int64_t max_seq_len,
                    std::optional<int64_t> hidden_dim = std::nullopt);
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;

  nn::KVCache empty_kv_cache() const { return nn::KVCache(num_layers()); }

  // One token per row, (B, 1) -> logits (B, 1, V); `cache` then holds that token too. A failed call leaves it as it was.
  torch::Tensor forward_cached(const torch::Tensor& ids, nn::KVCache& cache);
};
TORCH_MODULE(TransformerLM);

}  // namespace g2c::models
