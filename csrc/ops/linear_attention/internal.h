#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "core/recurrent_state.h"

// What the forms share; nothing outside this folder includes it.
namespace g2c::ops::detail {

constexpr int64_t kDefaultChunkSize = 64;

using OptionalTensor = std::optional<at::Tensor>;
using Output = std::tuple<at::Tensor, at::Tensor, at::Tensor>;                                         // out, S, z
using OutputWithNormalizer = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;               // out, S, z, phi(q_t) . z_t + eps
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // q, k, v, decay, S, z

using ParallelSchema = Output(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                              const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps);
using RecurrentSchema = OutputWithNormalizer(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                             const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps);
using ChunkwiseSchema = OutputWithNormalizer(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                             const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                                             int64_t chunk_size);
using BackwardSchema = Gradients(const OptionalTensor& grad_out, const OptionalTensor& grad_S, const OptionalTensor& grad_z,
                                 const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                 const OptionalTensor& initial_S, const OptionalTensor& initial_z, const at::Tensor& out,
                                 const at::Tensor& normalizer, bool normalize, int64_t chunk_size);
using StepSchema = Output(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
                          const at::Tensor& z, bool normalize, double eps);

template <typename Schema>
c10::TypedOperatorHandle<Schema> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Schema>();
}

c10::TypedOperatorHandle<ParallelSchema> parallel_op();
c10::TypedOperatorHandle<RecurrentSchema> recurrent_op();
c10::TypedOperatorHandle<ChunkwiseSchema> chunkwise_op();
c10::TypedOperatorHandle<BackwardSchema> chunkwise_backward_op();
c10::TypedOperatorHandle<StepSchema> step_op();

// Shapes, dtypes, devices and the range of decay. `time_dims` is 1 for sequences (B, T, H, d) and 0 for single tokens (B, H, d).
void check_inputs(const char* op, int64_t time_dims, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                  const OptionalTensor& S, const OptionalTensor& z);

// The normaliser is what a value column of ones would collect, so every form works on values (v, 1) and states (S, z) of width dv + 1.
at::Tensor with_ones(const at::Tensor& v);                        // (..., dv) -> (..., dv + 1)
at::Tensor join_state(const at::Tensor& S, const at::Tensor& z);  // -> (B, H, dk, dv + 1)
RecurrentState split_state(const at::Tensor& joined);             // its inverse, in memory of their own
at::Tensor joined_or_zeros(const OptionalTensor& S, const OptionalTensor& z, const at::Tensor& k, const at::Tensor& v);

// Powers of the decay for one chunk of C tokens, and their derivatives n decay^(n-1) if asked for. Exponents are never negative, and
// 0^0 = 1, so decay = 0 and decay = 1 need no special case. Each tensor broadcasts over (B, H, chunks, ., .).
struct DecayPowers {
  DecayPowers(const at::Tensor& decay, int64_t chunk, bool derivative);
  at::Tensor within;      // (H, 1, C, C): decay^(t - i) for i <= t, else 0
  at::Tensor from_start;  // (H, 1, C, 1): decay^(t + 1), of the state before the chunk as token t sees it
  at::Tensor to_end;      // (H, 1, C, 1): decay^(C - 1 - i), of token i's write as the chunk's end sees it
  at::Tensor whole;       // (H, 1, 1): decay^C
};

}  // namespace g2c::ops::detail
