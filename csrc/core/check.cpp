#include "core/check.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/aminmax.h>
#include <c10/core/DispatchKeySet.h>
#include <fmt/ranges.h>

namespace g2c {

std::string shape_of(const at::Tensor& tensor) {
  if (tensor.dim() == 1) {
    return fmt::format("({},)", tensor.sym_size(0).guard_int(__FILE__, __LINE__));
  }
  std::string text = "(";
  for (const auto& size : tensor.sym_sizes()) {
    if (text.size() > 1) {
      text += ", ";
    }
    // A symbolic size is printed as such: a message must not pin it to a number.
    const auto known = size.maybe_as_int();
    text += known ? fmt::format("{}", *known) : "?";
  }
  return text + ")";
}

bool has_readable_values(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWithoutValues({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                                c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});
  return tensor.defined() && tensor.is_cpu() && !tensor.key_set().has_any(kWithoutValues);
}

at::ScalarType accumulate_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

void check_heads(const char* op, int64_t embedding_dim, int64_t num_heads) {
  G2C_CHECK_VALUE(embedding_dim > 0 && num_heads > 0 && embedding_dim % num_heads == 0,
                  "{}: embedding_dim must be a positive multiple of a positive num_heads, got embedding_dim={} and num_heads={}", op,
                  embedding_dim, num_heads);
}

void check_positive(const char* op, const char* argument, int64_t value) {
  G2C_CHECK_VALUE(value > 0, "{}: {} must be positive, got {}", op, argument, value);
}

void check_token_ids(const char* op, const at::Tensor& ids, int64_t dim, int64_t vocab_size) {
  G2C_CHECK_TYPE(ids.scalar_type() == at::kLong, "{}: ids must be int64, got {}", op, toString(ids.scalar_type()));
  G2C_CHECK_VALUE(ids.dim() == dim, "{}: ids must have {} dimension{}, {}, got shape {}", op, dim, dim == 1 ? "" : "s",
                  dim == 1 ? "(B,)" : "(B, T)", shape_of(ids));
  if (has_readable_values(ids) && ids.numel() > 0) {
    const auto [lowest, highest] = at::aminmax(ids);
    const auto low = lowest.item<int64_t>();
    const auto high = highest.item<int64_t>();
    G2C_CHECK_VALUE(low >= 0 && high < vocab_size, "{}: ids must lie in [0, {}), got {}", op, vocab_size, low < 0 ? low : high);
  }
}

void check_features(const char* op, const at::Tensor& x, int64_t dim, int64_t embedding_dim, const at::Tensor& weight) {
  G2C_CHECK_VALUE(x.dim() == dim && x.sym_size(-1) == embedding_dim, "{}: x must have shape {}, D={}, got {}", op,
                  dim == 2 ? "(B, D)" : "(B, T, D)", embedding_dim, shape_of(x));
  G2C_CHECK_VALUE(x.device() == weight.device(), "{}: x is on {} but the parameters are on {}", op, x.device().str(),
                  weight.device().str());
  G2C_CHECK_TYPE(x.scalar_type() == weight.scalar_type() || at::autocast::is_autocast_enabled(x.device().type()),
                 "{}: x is {} but the parameters are {}: convert one of them", op, toString(x.scalar_type()),
                 toString(weight.scalar_type()));
}

}  // namespace g2c
