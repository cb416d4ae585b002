#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <string>
#include <utility>

#include "core/recurrent_state.h"
#include "ops/linear_attention/linear_attention.h"

namespace g2c::nn {

// Linear attention with a learned decay per head (Katharopoulos et al. 2020, arXiv:2006.16236; decay as in Sun et al. 2023,
// arXiv:2307.08621):
//   S_t = decay S_{t-1} + phi(k_t) v_t^T,  z_t = decay z_{t-1} + phi(k_t),  out_t = phi(q_t) S_t / (phi(q_t) . z_t + EPS).
class LinearAttentionImpl : public torch::nn::Cloneable<LinearAttentionImpl> {
 public:
  static constexpr double kEps = 1e-6;
  static constexpr double kInitialGammaLogit = 4.6;  // sigmoid(4.6) = 0.99

  // `form` names the form of forward(): "parallel", "chunkwise" or "recurrent"; none means chunkwise.
  LinearAttentionImpl(int64_t embedding_dim, int64_t num_heads, std::optional<std::string> form = std::nullopt);
  void reset() override;

  torch::Tensor forward(const torch::Tensor& x);  // (B, T, D) -> (B, T, D)

  // One token, (B, D) -> (B, D); without a state it is the first. The given state is left as it is.
  std::pair<torch::Tensor, RecurrentState> step(const torch::Tensor& x, const std::optional<RecurrentState>& state = std::nullopt);

  // Zeros: S (B, H, d, d), z (B, H, d); on the parameters' device unless told otherwise.
  RecurrentState init_state(int64_t batch_size, std::optional<torch::Device> device = std::nullopt) const;

  torch::Tensor decay() const;  // sigmoid(gamma_logit), (H,), float32 or float64

  int64_t embedding_dim, num_heads, head_dim;
  std::optional<std::string> form;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
  torch::Tensor gamma_logit;  // (H,)

 private:
  torch::Tensor heads_last(const torch::Tensor& x) const;  // (..., D) -> (..., H, d), a view
};
TORCH_MODULE(LinearAttention);

}  // namespace g2c::nn
