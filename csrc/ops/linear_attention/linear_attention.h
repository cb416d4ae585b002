#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/recurrent_state.h"

// Causal linear attention with one decay per head, in three forms that give the same numbers (README.md beside this file):
//
//   S_t = decay S_{t-1} + phi(k_t) v_t^T      z_t = decay z_{t-1} + phi(k_t)      out_t = phi(q_t) S_t / (phi(q_t) . z_t + eps)
//
// Shapes: q, k (B, T, H, dk), v (B, T, H, dv), decay (H,) in [0, 1], state S (B, H, dk, dv) and z (B, H, dk) -> out (B, T, H, dv).
namespace g2c::ops {

enum class Form { kParallel, kChunkwise, kRecurrent };

// "parallel", "chunkwise" or "recurrent"; anything else is a ValueError that starts with `op`.
Form parse_form(const char* op, std::string_view name);

struct LinearAttentionOptions {
  bool normalize = true;  // false: out_t = phi(q_t) S_t
  double eps = 1e-6;      // added to phi(q_t) . z_t
};

// The whole sequence; also returns the state after the last token.
std::tuple<at::Tensor, RecurrentState> linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                        const at::Tensor& decay, const std::optional<RecurrentState>& initial_state,
                                                        Form form, const LinearAttentionOptions& options = {});

// One token: q, k (B, H, dk), v (B, H, dv) -> out (B, H, dv) and a new state; the given one is left as it is.
std::tuple<at::Tensor, RecurrentState> linear_attention_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                             const at::Tensor& decay, const RecurrentState& state,
                                                             const LinearAttentionOptions& options = {});

}  // namespace g2c::ops
