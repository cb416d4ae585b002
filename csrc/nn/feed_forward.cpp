#include "nn/feed_forward.h"

#include "core/check.h"

namespace g2c::nn {

FeedForwardImpl::FeedForwardImpl(int64_t embedding_dim, std::optional<int64_t> hidden_dim)
    : embedding_dim(embedding_dim), hidden_dim(hidden_dim.value_or(4 * embedding_dim)) {
  check_positive("FeedForward", "embedding_dim", embedding_dim);
  check_positive("FeedForward", "hidden_dim", this->hidden_dim);
  reset();
}

void FeedForwardImpl::reset() {
  fc1 = register_module("fc1", torch::nn::Linear(embedding_dim, hidden_dim));
  fc2 = register_module("fc2", torch::nn::Linear(hidden_dim, embedding_dim));
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x) {
  G2C_CHECK_VALUE(x.dim() > 0 && x.sym_size(-1) == embedding_dim, "FeedForward: x must have shape (..., D), D={}, got {}", embedding_dim,
                  shape_of(x));
  return fc2(torch::gelu(fc1(x)));
}

}  // namespace g2c::nn
