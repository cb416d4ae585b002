#pragma once

#include <ATen/core/Tensor.h>

namespace g2c {

// What linear attention remembers of the past, whatever its length. float32, or float64 for float64 inputs.
struct RecurrentState {
  at::Tensor S;  // (B, H, dk, dv): decayed sum of phi(k) v^T
  at::Tensor z;  // (B, H, dk): decayed sum of phi(k), the normaliser
};

}  // namespace g2c
