#include "models/language_model.h"

#include "core/check.h"

namespace g2c::models {

HybridState HybridState::clone() const {
  HybridState copy(*this);
  for (auto& layer : copy.layers) {
    if (auto* cache = std::get_if<nn::LayerKVCache>(&layer)) {
      layer = cache->clone();
    } else {
      auto& state = std::get<RecurrentState>(layer);
      layer = RecurrentState{state.S.clone(), state.z.clone()};
    }
  }
  return copy;
}

HybridTransformerLMImpl::HybridTransformerLMImpl(int64_t vocab_size, int64_t embedding_dim, std::vector<std::string> layer_pattern,
                                                 int64_t num_heads, int64_t max_seq_len, std::optional<int64_t> hidden_dim)
    : vocab_size(vocab_size),
      embedding_dim(embedding_dim),
      num_heads(num_heads),
      max_seq_len(max_seq_len),
      hidden_dim(hidden_dim.value_or(4 * embedding_dim)),
      layer_pattern(std::move(layer_pattern)) {
  constexpr auto kName = "HybridTransformerLM";
  check_positive(kName, "vocab_size", vocab_size);
  check_heads(kName, embedding_dim, num_heads);
  check_positive(kName, "max_seq_len", max_seq_len);
  check_positive(kName, "hidden_dim", this->hidden_dim);
  G2C_CHECK_VALUE(!this->layer_pattern.empty(), "{}: layer_pattern must name at least one layer, got an empty one", kName);
  for (const auto& kind : this->layer_pattern) {
    nn::parse_kind(kName, kind);
  }
  reset();
}

void HybridTransformerLMImpl::reset() {
  token_embedding = register_module("token_embedding", nn::TokenEmbedding(vocab_size, embedding_dim));
  position_embedding = register_module("position_embedding", nn::LearnedPositionalEmbedding(max_seq_len, embedding_dim));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (const auto& kind : layer_pattern) {
    blocks->push_back(nn::Block(embedding_dim, num_heads, kind, hidden_dim));
  }
  final_norm = register_module("final_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({embedding_dim})));
  head_bias = register_parameter("head_bias", torch::zeros({vocab_size}));
}

nn::BlockImpl& HybridTransformerLMImpl::block(size_t index) const { return *(*blocks)[index]->as<nn::BlockImpl>(); }

torch::Tensor HybridTransformerLMImpl::logits(const torch::Tensor& x) {
  return torch::linear(final_norm(x), token_embedding->weight, head_bias);
}

torch::Tensor HybridTransformerLMImpl::forward(const torch::Tensor& ids) {
  check_token_ids("HybridTransformerLM", ids, 2, vocab_size);
  G2C_CHECK_VALUE(ids.size(1) <= max_seq_len, "HybridTransformerLM: ids hold {} tokens, more than max_seq_len={}", ids.size(1),
                  max_seq_len);
  auto x = token_embedding(ids) + position_embedding(ids.size(1));  // (B, T, D)
  for (size_t i = 0; i < layer_pattern.size(); ++i) {
    x = block(i).forward(x);
  }
  return logits(x);
}

HybridState HybridTransformerLMImpl::init_state(int64_t batch_size, std::optional<torch::Device> device) const {
  G2C_CHECK_VALUE(batch_size >= 0, "HybridTransformerLM.init_state: batch_size must not be negative, got {}", batch_size);
  HybridState state{.layers = {}, .batch_size = batch_size, .position = 0};
  for (size_t i = 0; i < layer_pattern.size(); ++i) {
    state.layers.push_back(block(i).init_state(batch_size, device));
  }
  return state;
}

void HybridTransformerLMImpl::check_state(const HybridState& state, int64_t batch_size) const {
  constexpr auto kName = "HybridTransformerLM.forward_step";
  G2C_CHECK_VALUE(state.layers.size() == layer_pattern.size(), "{}: the state has {} layers but the model {}", kName, state.layers.size(),
                  layer_pattern.size());
  G2C_CHECK_VALUE(state.batch_size == batch_size, "{}: the state is for batch size {}, got ids for {}", kName, state.batch_size,
                  batch_size);
  G2C_CHECK_VALUE(state.position < max_seq_len, "{}: the context is full, {} tokens of max_seq_len={}", kName, state.position, max_seq_len);
}

std::pair<torch::Tensor, HybridState> HybridTransformerLMImpl::forward_step(const torch::Tensor& ids, const HybridState& state) {
  check_token_ids("HybridTransformerLM.forward_step", ids, 1, vocab_size);
  check_state(state, ids.size(0));
  HybridState next{.layers = {}, .batch_size = state.batch_size, .position = state.position + 1};
  auto x = token_embedding(ids) + position_embedding(1, state.position);  // (B, D)
  for (size_t i = 0; i < layer_pattern.size(); ++i) {
    auto [y, layer] = block(i).step(x, state.layers[i]);
    x = std::move(y);
    next.layers.push_back(std::move(layer));
  }
  return {logits(x), std::move(next)};
}

TransformerLMImpl::TransformerLMImpl(int64_t vocab_size, int64_t embedding_dim, int64_t num_layers, int64_t num_heads, int64_t max_seq_len,
                                     std::optional<int64_t> hidden_dim)
    : HybridTransformerLMImpl(
          vocab_size, embedding_dim,
          (check_positive("TransformerLM", "num_layers", num_layers), std::vector<std::string>(static_cast<size_t>(num_layers), "full")),
          num_heads, max_seq_len, hidden_dim) {}

std::shared_ptr<torch::nn::Module> TransformerLMImpl::clone(const std::optional<torch::Device>& device) const {
  // Cloneable would make the base class of it.
  torch::NoGradGuard no_grad;
  auto copy = std::make_shared<TransformerLMImpl>(vocab_size, embedding_dim, num_layers(), num_heads, max_seq_len, hidden_dim);
  const auto sources = parameters();
  const auto targets = copy->parameters();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto data = sources[i].detach().clone();
    targets[i].set_data(device ? data.to(*device) : data);
  }
  return copy;
}

torch::Tensor TransformerLMImpl::forward_cached(const torch::Tensor& ids, nn::KVCache& cache) {
  G2C_CHECK_VALUE(ids.dim() == 2 && ids.size(1) == 1, "TransformerLM.forward_cached: token_ids must hold one token per row, (B, 1), got {}",
                  shape_of(ids));
  HybridState state{.layers = {cache.layers.begin(), cache.layers.end()}, .batch_size = ids.size(0), .position = cache.length()};
  auto [logits, next] = forward_step(ids.squeeze(1), state);
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    cache.layers[i] = std::get<nn::LayerKVCache>(std::move(next.layers[i]));
  }
  return logits.unsqueeze(1);
}

}  // namespace g2c::models
