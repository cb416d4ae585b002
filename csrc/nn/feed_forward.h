#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <optional>

namespace g2c::nn {

// D -> hidden -> D with exact GELU between; hidden is 4 D unless given.
class FeedForwardImpl : public torch::nn::Cloneable<FeedForwardImpl> {
 public:
  explicit FeedForwardImpl(int64_t embedding_dim, std::optional<int64_t> hidden_dim = std::nullopt);
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);  // (..., D) -> (..., D)

  int64_t embedding_dim, hidden_dim;
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace g2c::nn
