#pragma once

#include <cstdint>
#include <functional>
#include <span>

// Causal linear attention with a decay per head on a CPU: forward, backward and single step, over plain pointers and strides.
// README.md in this folder holds the derivation, the cost and the layout.
//
//   S_t = g S_{t-1} + f(k_t) v_t^T     z_t = g z_{t-1} + f(k_t)     out_t = f(q_t) S_t / (f(q_t) z_t + eps)   (without the division if !normalize)
//
// Nothing here checks its arguments: the caller has done so. Sizes and pointers must agree, decays lie in [0, 1], sequences stay inside their row.
namespace g2c::kernels {

// Of q, k, v, out and their gradients. Sums, states, decays and denominators are the "accumulator": double for kFloat64, float for the others.
enum class ElementType { kFloat32, kFloat64, kBFloat16, kFloat16 };

// kElu1 is elu(x) + 1 without its cancellation: exp(x) below 0 (at least the smallest positive number), x + 1 from 0 on.
enum class FeatureMap { kElu1, kIdentity };

// A (batch, time, head, dim) array of elements; strides count elements and may be anything, dim = 1 is the fast case.
template <typename Data>
struct View {
  Data* data = nullptr;
  int64_t batch = 0;
  int64_t time = 0;
  int64_t head = 0;
  int64_t dim = 1;
};
using Input = View<const void>;
using Output = View<void>;

// Tokens [begin, end) of row `batch`; a state passes through them in order and no other token is touched.
struct Sequence {
  int64_t batch = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// How the caller runs independent pieces of work: `run(n, body)` calls body(begin, end) on ranges that cover [0, n), on up to `threads` threads.
// An exception of the body must come back to the caller of run.
struct Parallel {
  using Body = std::function<void(int64_t begin, int64_t end)>;
  int threads = 1;
  std::function<void(int64_t n, const Body& body)> run;
};

// What forward and backward agree on. States are contiguous accumulators, one per sequence: S (sequences, heads, key_dim, value_dim) and
// z (sequences, heads, key_dim).
struct Problem {
  ElementType type = ElementType::kFloat32;
  FeatureMap feature_map = FeatureMap::kElu1;
  bool normalize = true;
  double eps = 1e-6;
  int64_t time = 0;  // tokens in a row: the inner size of `denominator`
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  std::span<const Sequence> sequences;
  const void* decay = nullptr;  // (heads) accumulators; null: no decay
  // (batch, time): a token that is false leaves S and z as they are, and its output and gradients are zero. Null: all are true.
  const bool* mask = nullptr;
  int64_t mask_batch = 0;
  int64_t mask_time = 1;
};

struct ForwardTensors {
  Input q, k, v;
  Output out;
  const void* initial_S = nullptr;  // null, with initial_z: zeros
  const void* initial_z = nullptr;
  void* final_S = nullptr;  // null, with final_z: not wanted
  void* final_z = nullptr;
  void* denominator = nullptr;  // (batch, heads, time) accumulators f(q_t) z_t + eps, for the backward; may be null. Unused if !normalize.
};

struct BackwardTensors {
  Input q, k, v, out, grad_out;      // `out` is only read if normalize
  const void* denominator = nullptr;  // as the forward wrote it
  const void* initial_S = nullptr;
  const void* initial_z = nullptr;
  const void* grad_final_S = nullptr;  // each may be null: zeros
  const void* grad_final_z = nullptr;
  Output grad_q, grad_k, grad_v;
  void* grad_initial_S = nullptr;  // each may be null: not wanted
  void* grad_initial_z = nullptr;
  void* grad_decay = nullptr;  // (heads) accumulators
};

// One token for each of `batch` rows; of the views only batch, head and dim count. `S` and `z` may be `new_S` and `new_z`.
struct StepTensors {
  int64_t batch = 0;
  Input q, k, v;
  Output out;
  const void* S = nullptr;
  const void* z = nullptr;
  void* new_S = nullptr;
  void* new_z = nullptr;
};

// Results for any number of threads are equal to rounding (1e-6 relative to the largest value), and bit-equal where each thread gets a whole head.
void linear_attention_forward(const Problem& problem, const ForwardTensors& tensors, const Parallel& parallel);
void linear_attention_backward(const Problem& problem, const BackwardTensors& tensors, const Parallel& parallel);

// `problem.sequences`, `time` and `mask` are not read.
void linear_attention_step(const Problem& problem, const StepTensors& tensors, const Parallel& parallel);

}  // namespace g2c::kernels
