#pragma once

#include <torch/nn/cloneable.h>

namespace g2c::nn {

// A vector per token. Weights start uniform in +-1/sqrt(D), since the language models' head is tied to them.
class TokenEmbeddingImpl : public torch::nn::Cloneable<TokenEmbeddingImpl> {
 public:
  TokenEmbeddingImpl(int64_t vocab_size, int64_t embedding_dim);
  void reset() override;
  torch::Tensor forward(const torch::Tensor& ids);  // (B, T) or (B,) int64 -> (B, T, D) or (B, D)

  int64_t vocab_size, embedding_dim;
  torch::Tensor weight;  // (V, D)
};
TORCH_MODULE(TokenEmbedding);

// A vector per position 0 .. max_seq_len - 1.
class LearnedPositionalEmbeddingImpl : public torch::nn::Cloneable<LearnedPositionalEmbeddingImpl> {
 public:
  LearnedPositionalEmbeddingImpl(int64_t max_seq_len, int64_t embedding_dim);
  void reset() override;
  torch::Tensor forward(int64_t length, int64_t start = 0);  // -> (length, D), a view

  int64_t max_seq_len, embedding_dim;
  torch::Tensor weight;  // (max_seq_len, D)
};
TORCH_MODULE(LearnedPositionalEmbedding);

}  // namespace g2c::nn
