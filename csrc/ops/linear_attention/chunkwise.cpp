#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "core/check.h"
#include "ops/feature_map/feature_map.h"
#include "ops/linear_attention/internal.h"

// The any-device form, out of ATen calls: linear in T. Chunks of C tokens are handled side by side, as in the parallel form but C x C;
// only the states at their borders pass from one to the next. Derivation of the backward pass: README.md beside this file.
namespace g2c::ops::detail {
namespace {

// A run of whole chunks of one length: T = N C + R tokens are N chunks of C, then one of R.
struct Run {
  int64_t start, chunks, chunk;
  int64_t tokens() const { return chunks * chunk; }
};

std::vector<Run> runs_of(int64_t tokens, int64_t chunk_size) {
  std::vector<Run> runs;
  const auto whole = tokens / chunk_size;
  const auto rest = tokens % chunk_size;
  if (whole > 0) {
    runs.push_back({0, whole, chunk_size});
  }
  if (rest > 0) {
    runs.push_back({whole * chunk_size, 1, rest});
  }
  return runs;
}

// (B, T, H, d) -> (B, H, N, C, d) for the tokens of a run; a view that the results are written through, too.
at::Tensor chunks_of(const at::Tensor& x, const Run& run) {
  return x.narrow(1, run.start, run.tokens()).unflatten(1, {run.chunks, run.chunk}).permute({0, 3, 1, 2, 4});
}

// The states before each chunk, (B, H, N, dk, w), from the one before the first; `state` moves on to the one after the last.
at::Tensor states_before(const at::Tensor& phi_k, const at::Tensor& values, const DecayPowers& powers, at::Tensor& state) {
  const auto written = at::matmul((phi_k * powers.to_end).transpose(-1, -2), values);
  auto before = at::empty_like(written);
  for (int64_t n = 0; n < written.size(2); ++n) {
    before.select(2, n).copy_(state);
    state = state * powers.whole + written.select(2, n);
  }
  return before;
}

OutputWithNormalizer chunkwise(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                               const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                               int64_t chunk_size) {
  check_inputs("linear_attention_chunkwise", 1, q, k, v, decay, initial_S, initial_z);
  check_positive("linear_attention_chunkwise", "chunk_size", chunk_size);
  const auto type = accumulate_type(q.scalar_type());
  const auto gamma = decay.to(type);
  const auto dv = v.size(-1);
  auto state = joined_or_zeros(initial_S, initial_z, k, v);
  auto out = at::empty(v.sizes(), v.options());
  auto normalizer = at::empty({q.size(0), q.size(1), q.size(2), 1}, q.options().dtype(type));
  for (const auto& run : runs_of(q.size(1), chunk_size)) {
    const DecayPowers powers(gamma, run.chunk, /*derivative=*/false);
    const auto phi_q = feature_map(chunks_of(q, run).to(type));  // (B, H, N, C, dk)
    const auto phi_k = feature_map(chunks_of(k, run).to(type));  // (B, H, N, C, dk)
    const auto values = with_ones(chunks_of(v, run).to(type));   // (B, H, N, C, dv + 1)
    const auto before = states_before(phi_k, values, powers, state);
    auto read = at::matmul(phi_q, before).mul_(powers.from_start);
    read += at::matmul(at::matmul(phi_q, phi_k.transpose(-1, -2)).mul_(powers.within), values);
    const auto sums = read.narrow(-1, 0, dv);
    const auto divisor = read.narrow(-1, dv, 1).add_(eps);
    chunks_of(normalizer, run).copy_(divisor);
    chunks_of(out, run).copy_(normalize ? sums / divisor : sums);
  }
  const auto final_state = split_state(state);
  return {out, final_state.S, final_state.z, normalizer.squeeze(-1)};
}

// With values u = (v, 1) and gradients w of what was read: the same sums, run from the end. `R` is the gradient of a chunk's last state.
Gradients chunkwise_backward(const OptionalTensor& grad_out, const OptionalTensor& grad_S, const OptionalTensor& grad_z,
                             const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                             const OptionalTensor& initial_S, const OptionalTensor& initial_z, const at::Tensor& out,
                             const at::Tensor& normalizer, bool normalize, int64_t chunk_size) {
  const auto type = accumulate_type(q.scalar_type());
  const auto gamma = decay.to(type);
  auto state = joined_or_zeros(initial_S, initial_z, k, v);
  const auto S_like = state.narrow(-1, 0, v.size(-1));
  auto R = join_state(grad_S ? *grad_S : at::zeros_like(S_like), grad_z ? *grad_z : at::zeros_like(S_like.select(-1, 0)));
  auto grad_q = at::empty_like(q, at::MemoryFormat::Contiguous);
  auto grad_k = at::empty_like(k, at::MemoryFormat::Contiguous);
  auto grad_v = at::empty_like(v, at::MemoryFormat::Contiguous);
  auto grad_gamma = at::zeros_like(gamma);

  const auto runs = runs_of(q.size(1), chunk_size);
  std::vector<at::Tensor> states;  // recomputed: cheaper than keeping them from the forward pass
  for (const auto& run : runs) {
    states.push_back(states_before(feature_map(chunks_of(k, run).to(type)), with_ones(chunks_of(v, run).to(type)),
                                   DecayPowers(gamma, run.chunk, false), state));
  }
  for (size_t index = runs.size(); index-- > 0;) {
    const auto& run = runs[index];
    const auto& before = states[index];
    const DecayPowers powers(gamma, run.chunk, /*derivative=*/false);
    const DecayPowers slopes(gamma, run.chunk, /*derivative=*/true);
    const auto q_run = chunks_of(q, run).to(type);
    const auto k_run = chunks_of(k, run).to(type);
    const auto phi_q = feature_map(q_run);
    const auto phi_k = feature_map(k_run);
    const auto u = with_ones(chunks_of(v, run).to(type));
    auto w = at::zeros_like(u);
    if (grad_out) {
      // out = sums / divisor: d sums = g / divisor, d divisor = -(g . out) / divisor.
      auto g = chunks_of(*grad_out, run).to(type);
      if (normalize) {
        const auto divisor = chunks_of(normalizer.unsqueeze(-1), run);
        g = g / divisor;
        w.select(-1, v.size(-1)).copy_((g * chunks_of(out, run).to(type)).sum(-1).neg_());
      }
      w.narrow(-1, 0, v.size(-1)).copy_(g);
    }

    // Gradients of the states after each chunk, (B, H, N, dk, dv + 1), from the last to the first.
    const auto from_reads = at::matmul((phi_q * powers.from_start).transpose(-1, -2), w);
    auto after = at::empty_like(from_reads);
    for (int64_t n = run.chunks; n-- > 0;) {
      after.select(2, n).copy_(R);
      R = R * powers.whole + from_reads.select(2, n);
    }

    const auto scores = at::matmul(phi_q, phi_k.transpose(-1, -2));    // (B, H, N, C, C), rows t, columns i
    const auto value_scores = at::matmul(w, u.transpose(-1, -2));      // w_t . u_i
    const auto from_before = at::matmul(w, before.transpose(-1, -2));  // S w_t
    const auto from_after = at::matmul(u, after.transpose(-1, -2));    // R u_i
    const auto decayed = value_scores * powers.within;
    const auto d_phi_q = at::matmul(decayed, phi_k) + from_before * powers.from_start;
    const auto d_phi_k = at::matmul(decayed.transpose(-1, -2), phi_q) + from_after * powers.to_end;
    const auto d_u = at::matmul((scores * powers.within).transpose(-1, -2), w) + at::matmul(phi_k, after) * powers.to_end;
    chunks_of(grad_q, run).copy_(d_phi_q * feature_map_slope(q_run, phi_q));
    chunks_of(grad_k, run).copy_(d_phi_k * feature_map_slope(k_run, phi_k));
    chunks_of(grad_v, run).copy_(d_u.narrow(-1, 0, v.size(-1)));

    // Each power of the decay above, by its derivative instead.
    grad_gamma += (slopes.whole.unsqueeze(1) * (before * after)).sum(at::IntArrayRef{0, 2, 3, 4});
    grad_gamma += (slopes.to_end * (phi_k * from_after)).sum(at::IntArrayRef{0, 2, 3, 4});
    grad_gamma += (slopes.from_start * (phi_q * from_before)).sum(at::IntArrayRef{0, 2, 3, 4});
    grad_gamma += (slopes.within * scores * value_scores).sum(at::IntArrayRef{0, 2, 3, 4});
  }
  const auto grad_initial = split_state(R);
  return {grad_q, grad_k, grad_v, grad_gamma.to(decay.scalar_type()), grad_initial.S, grad_initial.z};
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, CompositeExplicitAutograd, m) {
  m.impl("linear_attention_chunkwise", TORCH_FN(chunkwise));
  m.impl("linear_attention_chunkwise_backward", TORCH_FN(chunkwise_backward));
}

}  // namespace g2c::ops::detail
