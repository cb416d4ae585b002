#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "core/check.h"
#include "kernels/linear_attention.h"
#include "ops/linear_attention/internal.h"

// The CPU kernels of csrc/kernels behind the same schemas: tensors become pointers and strides here, and nothing else.
namespace g2c::ops::detail {
namespace {

kernels::ElementType element_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return kernels::ElementType::kFloat64;
    case at::kBFloat16:
      return kernels::ElementType::kBFloat16;
    case at::kHalf:
      return kernels::ElementType::kFloat16;
    default:
      return kernels::ElementType::kFloat32;
  }
}

// (B, T, H, d), or (B, H, d) of a single token, with whatever strides it has.
template <typename View, typename Data>
View view_of(const at::Tensor& x, Data* data) {
  const auto time = x.dim() == 4 ? x.stride(1) : 0;
  return {data, x.stride(0), time, x.stride(-2), x.stride(-1)};
}

kernels::Input input(const at::Tensor& x) { return view_of<kernels::Input>(x, x.const_data_ptr()); }
kernels::Output output(const at::Tensor& x) { return view_of<kernels::Output>(x, x.mutable_data_ptr()); }

const void* data_or_null(const OptionalTensor& x) { return x ? x->const_data_ptr() : nullptr; }

OptionalTensor contiguous(const OptionalTensor& x) { return x ? OptionalTensor(x->contiguous()) : std::nullopt; }

kernels::Parallel threads() {
  return {at::get_num_threads(),
          [](int64_t n, const kernels::Parallel::Body& body) { at::parallel_for(0, n, /*grain_size=*/1, body); }};
}

// Every row of a batch is one sequence. Holds what the problem points to.
struct Setting {
  Setting(const at::Tensor& q, const at::Tensor& v, const at::Tensor& decay_, bool normalize, double eps)
      : decay(decay_.to(accumulate_type(q.scalar_type())).contiguous()) {
    const auto time = q.dim() == 4 ? q.size(1) : 1;
    for (int64_t row = 0; row < q.size(0); ++row) {
      sequences.push_back({row, 0, time});
    }
    problem.type = element_type(q.scalar_type());
    problem.normalize = normalize;
    problem.eps = eps;
    problem.time = time;
    problem.heads = q.size(-2);
    problem.key_dim = q.size(-1);
    problem.value_dim = v.size(-1);
    problem.sequences = sequences;
    problem.decay = decay.const_data_ptr();
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  at::Tensor decay;
  std::vector<kernels::Sequence> sequences;
  kernels::Problem problem;
};

OutputWithNormalizer chunkwise_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                   const OptionalTensor& initial_S, const OptionalTensor& initial_z, bool normalize, double eps,
                                   int64_t chunk_size) {
  if (!cpu_kernels_enabled()) {
    return chunkwise_any(q, k, v, decay, initial_S, initial_z, normalize, eps, chunk_size);
  }
  check_inputs("linear_attention_chunkwise", 1, q, k, v, decay, initial_S, initial_z);
  check_positive("linear_attention_chunkwise", "chunk_size", chunk_size);
  const Setting setting(q, v, decay, normalize, eps);
  const auto S_0 = contiguous(initial_S);
  const auto z_0 = contiguous(initial_z);
  const auto wide = q.options().dtype(accumulate_type(q.scalar_type()));
  const auto out = at::empty(v.sizes(), v.options());
  const auto S = at::empty({q.size(0), q.size(2), q.size(3), v.size(3)}, wide);
  const auto z = at::empty({q.size(0), q.size(2), q.size(3)}, wide);
  const auto normalizer = at::empty({q.size(0), q.size(2), q.size(1)}, wide);
  kernels::ForwardTensors tensors;
  tensors.q = input(q);
  tensors.k = input(k);
  tensors.v = input(v);
  tensors.out = output(out);
  tensors.initial_S = data_or_null(S_0);
  tensors.initial_z = data_or_null(z_0);
  tensors.final_S = S.mutable_data_ptr();
  tensors.final_z = z.mutable_data_ptr();
  tensors.denominator = normalizer.mutable_data_ptr();
  kernels::linear_attention_forward(setting.problem, tensors, threads());
  return {out, S, z, normalizer};
}

Gradients chunkwise_backward_cpu(const OptionalTensor& grad_out, const OptionalTensor& grad_S, const OptionalTensor& grad_z,
                                 const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                                 const OptionalTensor& initial_S, const OptionalTensor& initial_z, const at::Tensor& out,
                                 const at::Tensor& normalizer, bool normalize, int64_t chunk_size) {
  if (!cpu_kernels_enabled()) {
    return chunkwise_backward_any(grad_out, grad_S, grad_z, q, k, v, decay, initial_S, initial_z, out, normalizer, normalize, chunk_size);
  }
  const Setting setting(q, v, decay, normalize, /*eps=*/0);  // the normaliser has it already
  const auto S_0 = contiguous(initial_S);
  const auto z_0 = contiguous(initial_z);
  const auto d_S = contiguous(grad_S);
  const auto d_z = contiguous(grad_z);
  const auto d_out = grad_out ? *grad_out : at::zeros({}, v.options()).expand(v.sizes());
  const auto divisor = normalizer.contiguous();
  const auto wide = q.options().dtype(accumulate_type(q.scalar_type()));
  const auto like = [](const at::Tensor& x) { return at::empty_like(x, at::MemoryFormat::Contiguous); };
  const auto grad_q = like(q);
  const auto grad_k = like(k);
  const auto grad_v = like(v);
  const auto grad_decay = at::zeros({q.size(2)}, wide);
  const auto grad_S_0 = at::empty({q.size(0), q.size(2), q.size(3), v.size(3)}, wide);
  const auto grad_z_0 = at::empty({q.size(0), q.size(2), q.size(3)}, wide);
  kernels::BackwardTensors tensors;
  tensors.q = input(q);
  tensors.k = input(k);
  tensors.v = input(v);
  tensors.out = input(out);
  tensors.grad_out = input(d_out);
  tensors.denominator = divisor.const_data_ptr();
  tensors.initial_S = data_or_null(S_0);
  tensors.initial_z = data_or_null(z_0);
  tensors.grad_final_S = data_or_null(d_S);
  tensors.grad_final_z = data_or_null(d_z);
  tensors.grad_q = output(grad_q);
  tensors.grad_k = output(grad_k);
  tensors.grad_v = output(grad_v);
  tensors.grad_initial_S = grad_S_0.mutable_data_ptr();
  tensors.grad_initial_z = grad_z_0.mutable_data_ptr();
  tensors.grad_decay = grad_decay.mutable_data_ptr();
  kernels::linear_attention_backward(setting.problem, tensors, threads());
  return {grad_q, grad_k, grad_v, grad_decay.to(decay.scalar_type()), grad_S_0, grad_z_0};
}

Output step_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& S,
                const at::Tensor& z, bool normalize, double eps) {
  if (!cpu_kernels_enabled()) {
    return step_any(q, k, v, decay, S, z, normalize, eps);
  }
  check_inputs("linear_attention_step", 0, q, k, v, decay, S, z);
  const Setting setting(q, v, decay, normalize, eps);
  const auto S_before = S.contiguous();
  const auto z_before = z.contiguous();
  const auto out = at::empty(v.sizes(), v.options());
  const auto S_next = at::empty(S.sizes(), S.options());
  const auto z_next = at::empty(z.sizes(), z.options());
  kernels::StepTensors tensors;
  tensors.batch = q.size(0);
  tensors.q = input(q);
  tensors.k = input(k);
  tensors.v = input(v);
  tensors.out = output(out);
  tensors.S = S_before.const_data_ptr();
  tensors.z = z_before.const_data_ptr();
  tensors.new_S = S_next.mutable_data_ptr();
  tensors.new_z = z_next.mutable_data_ptr();
  kernels::linear_attention_step(setting.problem, tensors, threads());
  return {out, S_next, z_next};
}

}  // namespace

TORCH_LIBRARY_IMPL(g2c, CPU, m) {
  m.impl("linear_attention_chunkwise", TORCH_FN(chunkwise_cpu));
  m.impl("linear_attention_chunkwise_backward", TORCH_FN(chunkwise_backward_cpu));
  m.impl("linear_attention_step", TORCH_FN(step_cpu));
}

}  // namespace g2c::ops::detail
