#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <string>

// Checks at the door of every op and module. A message starts with the op's name and tells which argument is wrong, what came and
// what is allowed. Python sees ValueError, TypeError and NotImplementedError.
#define G2C_CHECK_VALUE(condition, ...) TORCH_CHECK_VALUE(condition, ::fmt::format(__VA_ARGS__))
#define G2C_CHECK_TYPE(condition, ...) TORCH_CHECK_TYPE(condition, ::fmt::format(__VA_ARGS__))
#define G2C_CHECK_IMPLEMENTED(condition, ...) TORCH_CHECK_NOT_IMPLEMENTED(condition, ::fmt::format(__VA_ARGS__))

namespace g2c {

// "(2, 3, 4)", for messages.
std::string shape_of(const at::Tensor& tensor);

// True if the tensor's values can be read now without waiting for a device: a plain CPU tensor, not a meta, fake, or functorch-wrapped one.
bool has_readable_values(const at::Tensor& tensor);

// The dtype of sums and states: float64 for float64 inputs, float32 for everything narrower.
at::ScalarType accumulate_type(at::ScalarType type);

// D must split evenly into H heads, both positive.
void check_heads(const char* op, int64_t embedding_dim, int64_t num_heads);

// A positive size of a module, named `argument`.
void check_positive(const char* op, const char* argument, int64_t value);

// Token ids: int64 with `dim` dimensions and, where the values can be read, all inside [0, vocab_size).
void check_token_ids(const char* op, const at::Tensor& ids, int64_t dim, int64_t vocab_size);

// A floating-point input of a module: `dim` dimensions, `embedding_dim` columns, on the parameters' device and of their dtype
// (under autocast the dtype is free, since the projections cast).
void check_features(const char* op, const at::Tensor& x, int64_t dim, int64_t embedding_dim, const at::Tensor& weight);

}  // namespace g2c
