#include "nn/embeddings.h"

#include <torch/nn/init.h>
#include <torch/types.h>

#include <cmath>

#include "core/check.h"

namespace g2c::nn {
namespace {

torch::Tensor uniform_rows(int64_t rows, int64_t embedding_dim) {
  const auto bound = 1.0 / std::sqrt(static_cast<double>(embedding_dim));
  return torch::nn::init::uniform_(torch::empty({rows, embedding_dim}), -bound, bound);
}

}  // namespace

TokenEmbeddingImpl::TokenEmbeddingImpl(int64_t vocab_size, int64_t embedding_dim) : vocab_size(vocab_size), embedding_dim(embedding_dim) {
  check_positive("TokenEmbedding", "vocab_size", vocab_size);
  check_positive("TokenEmbedding", "embedding_dim", embedding_dim);
  reset();
}

void TokenEmbeddingImpl::reset() { weight = register_parameter("weight", uniform_rows(vocab_size, embedding_dim)); }

torch::Tensor TokenEmbeddingImpl::forward(const torch::Tensor& ids) {
  check_token_ids("TokenEmbedding", ids, ids.dim() == 1 ? 1 : 2, vocab_size);
  G2C_CHECK_VALUE(ids.device() == weight.device(), "TokenEmbedding: ids are on {} but the parameters are on {}", ids.device().str(),
                  weight.device().str());
  return torch::embedding(weight, ids);
}

LearnedPositionalEmbeddingImpl::LearnedPositionalEmbeddingImpl(int64_t max_seq_len, int64_t embedding_dim)
    : max_seq_len(max_seq_len), embedding_dim(embedding_dim) {
  check_positive("LearnedPositionalEmbedding", "max_seq_len", max_seq_len);
  check_positive("LearnedPositionalEmbedding", "embedding_dim", embedding_dim);
  reset();
}

void LearnedPositionalEmbeddingImpl::reset() { weight = register_parameter("weight", uniform_rows(max_seq_len, embedding_dim)); }

torch::Tensor LearnedPositionalEmbeddingImpl::forward(int64_t length, int64_t start) {
  G2C_CHECK_VALUE(start >= 0 && length >= 0 && start + length <= max_seq_len,
                  "LearnedPositionalEmbedding: positions {} to {} do not fit in max_seq_len={}", start, start + length, max_seq_len);
  return weight.narrow(0, start, length);
}

}  // namespace g2c::nn
