#pragma once

#include <ATen/core/Tensor.h>

namespace g2c::nn {

// (B, T, D) -> (B, H, T, D/H), a view.
inline at::Tensor split_heads(const at::Tensor& x, int64_t num_heads) {
  return x.unflatten_symint(-1, {num_heads, x.sym_size(-1) / num_heads}).transpose(1, 2);
}

// (B, H, T, D/H) -> (B, T, D).
inline at::Tensor merge_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(-2); }

}  // namespace g2c::nn
