#include "nn/kv_cache.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/check.h"

namespace g2c::nn {
namespace {

void check_pair(const at::Tensor& keys, const at::Tensor& values) {
  G2C_CHECK_VALUE(keys.defined() && values.defined(), "LayerKVCache: keys and values come together, got only one");
  G2C_CHECK_VALUE(keys.dim() == 4 && values.dim() == 4, "LayerKVCache: keys and values must have shape (B, H, T, d), got {} and {}",
                  shape_of(keys), shape_of(values));
  G2C_CHECK_VALUE(keys.sym_sizes().slice(0, 3) == values.sym_sizes().slice(0, 3),
                  "LayerKVCache: keys and values must agree in B, H and T, got {} and {}", shape_of(keys), shape_of(values));
  G2C_CHECK_VALUE(keys.device() == values.device(), "LayerKVCache: keys are on {} but values on {}", keys.device().str(),
                  values.device().str());
  G2C_CHECK_TYPE(keys.scalar_type() == values.scalar_type(), "LayerKVCache: keys are {} but values {}", toString(keys.scalar_type()),
                 toString(values.scalar_type()));
}

void check_fits(const char* name, const at::Tensor& held, const at::Tensor& added) {
  const auto fixed = [](const at::Tensor& x) { return std::array{x.size(0), x.size(1), x.size(3)}; };
  G2C_CHECK_VALUE(fixed(held) == fixed(added), "LayerKVCache.append: {} must have shape (B, H, T, d) like those held, {}, got {}", name,
                  shape_of(held), shape_of(added));
  G2C_CHECK_VALUE(held.device() == added.device(), "LayerKVCache.append: {} held are on {}, got {}", name, held.device().str(),
                  added.device().str());
  G2C_CHECK_TYPE(held.scalar_type() == added.scalar_type(), "LayerKVCache.append: {} held are {}, got {}", name,
                 toString(held.scalar_type()), toString(added.scalar_type()));
}

}  // namespace

LayerKVCache::LayerKVCache(const at::Tensor& keys, const at::Tensor& values) {
  if (keys.defined() || values.defined()) {
    check_pair(keys, values);
    keys_ = keys;
    values_ = values;
  }
}

void LayerKVCache::reserve(int64_t length) {
  constexpr int64_t kSmallest = 64;
  auto grown = std::make_shared<Buffer>();
  const auto capacity = std::max({length, 2 * this->length(), kSmallest});
  const auto like = [&](const at::Tensor& x) { return at::empty({x.size(0), x.size(1), capacity, x.size(3)}, x.options()); };
  grown->keys = like(keys_);
  grown->values = like(values_);
  grown->filled = this->length();
  grown->keys.narrow(2, 0, grown->filled).copy_(keys_);
  grown->values.narrow(2, 0, grown->filled).copy_(values_);
  buffer_ = std::move(grown);
}

LayerKVCache& LayerKVCache::append(const at::Tensor& keys, const at::Tensor& values) {
  check_pair(keys, values);
  if (empty()) {
    keys_ = keys;
    values_ = values;
    return *this;
  }
  check_fits("keys", keys_, keys);
  check_fits("values", values_, values);
  const bool watched =
      at::GradMode::is_enabled() && (keys.requires_grad() || values.requires_grad() || keys_.requires_grad() || values_.requires_grad());
  if (watched) {
    // Autograd forbids writing into memory that earlier steps still need.
    keys_ = at::cat({keys_, keys}, 2);
    values_ = at::cat({values_, values}, 2);
    buffer_.reset();
    return *this;
  }
  const auto start = length();
  const auto end = start + keys.size(2);
  if (!buffer_ || buffer_->filled != start || buffer_->keys.size(2) < end) {
    reserve(end);
  }
  buffer_->keys.narrow(2, start, keys.size(2)).copy_(keys);
  buffer_->values.narrow(2, start, keys.size(2)).copy_(values);
  buffer_->filled = end;
  keys_ = buffer_->keys.narrow(2, 0, end);
  values_ = buffer_->values.narrow(2, 0, end);
  return *this;
}

LayerKVCache LayerKVCache::clone() const {
  return empty() ? LayerKVCache() : LayerKVCache(keys_.clone(at::MemoryFormat::Contiguous), values_.clone(at::MemoryFormat::Contiguous));
}

KVCache::KVCache(int64_t num_layers) {
  check_positive("KVCache", "num_layers", num_layers);
  layers.resize(static_cast<size_t>(num_layers));
}

KVCache KVCache::clone() const {
  KVCache copy(*this);
  std::transform(layers.begin(), layers.end(), copy.layers.begin(), [](const auto& layer) { return layer.clone(); });
  return copy;
}

}  // namespace g2c::nn
