#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace g2c::nn {

// Keys and values of one full-attention layer, (B, H, T, d) each, for all tokens so far.
//
// Appending costs O(1) amortised: the tokens lie in a buffer with room to grow. A copy of a cache shares the buffer yet stays as it is
// when either of the two goes on: only the one that reaches the buffer's end may write behind it, another gets a buffer of its own.
class LayerKVCache {
 public:
  LayerKVCache() = default;
  LayerKVCache(const at::Tensor& keys, const at::Tensor& values);

  // (B, H, n, d) each; n new tokens at the end.
  LayerKVCache& append(const at::Tensor& keys, const at::Tensor& values);

  bool empty() const { return !keys_.defined(); }
  int64_t length() const { return keys_.defined() ? keys_.size(2) : 0; }
  const at::Tensor& keys() const { return keys_; }      // undefined while empty
  const at::Tensor& values() const { return values_; }  // undefined while empty

  LayerKVCache clone() const;  // in memory of its own

 private:
  struct Buffer {
    at::Tensor keys, values;  // (B, H, capacity, d)
    int64_t filled = 0;
  };
  void reserve(int64_t length);

  std::shared_ptr<Buffer> buffer_;  // none when keys_ and values_ are tensors of their own
  at::Tensor keys_, values_;
};

// One cache per layer.
struct KVCache {
  explicit KVCache(int64_t num_layers);
  int64_t length() const { return layers.empty() ? 0 : layers.front().length(); }
  KVCache clone() const;
  std::vector<LayerKVCache> layers;
};

}  // namespace g2c::nn
