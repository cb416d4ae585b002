#include "ops/linear_attention/linear_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>

#include "core/check.h"
#include "ops/linear_attention/internal.h"

namespace g2c::ops {
namespace detail {

c10::TypedOperatorHandle<ParallelSchema> parallel_op() {
  static const auto op = find_op<ParallelSchema>("g2c::linear_attention_parallel");
  return op;
}

c10::TypedOperatorHandle<RecurrentSchema> recurrent_op() {
  static const auto op = find_op<RecurrentSchema>("g2c::linear_attention_recurrent");
  return op;
}

c10::TypedOperatorHandle<ChunkwiseSchema> chunkwise_op() {
  static const auto op = find_op<ChunkwiseSchema>("g2c::linear_attention_chunkwise");
  return op;
}

c10::TypedOperatorHandle<BackwardSchema> chunkwise_backward_op() {
  static const auto op = find_op<BackwardSchema>("g2c::linear_attention_chunkwise_backward");
  return op;
}

c10::TypedOperatorHandle<StepSchema> step_op() {
  static const auto op = find_op<StepSchema>("g2c::linear_attention_step");
  return op;
}

void check_inputs(const char* op, int64_t time_dims, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                  const OptionalTensor& S, const OptionalTensor& z) {
  const int64_t dims = 3 + time_dims;
  const char* layout = time_dims == 1 ? "(B, T, H, d)" : "(B, H, d)";
  const auto same_lead = [&](const at::Tensor& a) {
    return a.dim() == dims && a.sym_sizes().slice(0, dims - 1) == q.sym_sizes().slice(0, dims - 1);
  };
  G2C_CHECK_VALUE(q.dim() == dims, "{}: q must have shape {}, got {}", op, layout, shape_of(q));
  G2C_CHECK_VALUE(q.sym_size(-2) > 0 && q.sym_size(-1) > 0, "{}: q needs at least one head and one column, got {}", op, shape_of(q));
  G2C_CHECK_VALUE(same_lead(k) && k.sym_size(-1) == q.sym_size(-1), "{}: k must have the shape of q, {}, got {}", op, shape_of(q),
                  shape_of(k));
  G2C_CHECK_VALUE(same_lead(v) && v.sym_size(-1) > 0, "{}: v must have the shape of q, {}, up to the last dimension, got {}", op,
                  shape_of(q), shape_of(v));
  const auto B = q.sym_size(0);
  const auto H = q.sym_size(-2);
  G2C_CHECK_VALUE(decay.dim() == 1 && decay.sym_size(0) == H, "{}: decay must have one value per head, ({},), got {}", op,
                  H.guard_int(__FILE__, __LINE__), shape_of(decay));

  G2C_CHECK_TYPE(at::isFloatingType(q.scalar_type()), "{}: q must be floating point, got {}", op, toString(q.scalar_type()));
  G2C_CHECK_TYPE(at::isFloatingType(decay.scalar_type()), "{}: decay must be floating point, got {}", op, toString(decay.scalar_type()));
  const auto check_like_q = [&](const char* name, const at::Tensor& a, at::ScalarType type) {
    G2C_CHECK_TYPE(a.scalar_type() == type, "{}: {} must be {} since q is {}, got {}", op, name, toString(type), toString(q.scalar_type()),
                   toString(a.scalar_type()));
    G2C_CHECK_VALUE(a.device() == q.device(), "{}: {} must be on q's device {}, got {}", op, name, q.device().str(), a.device().str());
  };
  check_like_q("k", k, q.scalar_type());
  check_like_q("v", v, q.scalar_type());
  check_like_q("decay", decay, decay.scalar_type());

  G2C_CHECK_VALUE(S.has_value() == z.has_value(), "{}: a state is the pair (S, z), got {} alone", op, S.has_value() ? "S" : "z");
  if (S) {
    const auto state_type = accumulate_type(q.scalar_type());
    check_like_q("S", *S, state_type);
    check_like_q("z", *z, state_type);
    const bool fits = S->dim() == 4 && z->dim() == 3 && S->sym_size(0) == B && S->sym_size(1) == H && S->sym_size(2) == k.sym_size(-1) &&
                      S->sym_size(3) == v.sym_size(-1) && z->sym_sizes() == S->sym_sizes().slice(0, 3);
    G2C_CHECK_VALUE(fits, "{}: the state must be S (B, H, dk, dv) and z (B, H, dk) for q {} and v {}, got S {} and z {}", op, shape_of(q),
                    shape_of(v), shape_of(*S), shape_of(*z));
  }
  if (has_readable_values(decay)) {
    // Negated, so that NaN fails too.
    const auto values = decay.detach().to(at::kDouble).contiguous();
    for (const auto& value : c10::ArrayRef<double>(values.const_data_ptr<double>(), static_cast<size_t>(values.numel()))) {
      G2C_CHECK_VALUE(value >= 0 && value <= 1, "{}: decay must lie in [0, 1], got {}", op, value);
    }
  }
}

at::Tensor with_ones(const at::Tensor& v) {
  auto shape = v.sym_sizes().vec();
  shape.back() = 1;
  return at::cat({v, at::ones_symint(shape, v.options())}, -1);
}

at::Tensor join_state(const at::Tensor& S, const at::Tensor& z) { return at::cat({S, z.unsqueeze(-1)}, -1); }

RecurrentState split_state(const at::Tensor& joined) {
  const auto values = joined.sym_size(-1) - 1;
  return {joined.narrow_symint(-1, 0, values).clone(at::MemoryFormat::Contiguous),
          joined.select_symint(-1, values).clone(at::MemoryFormat::Contiguous)};
}

at::Tensor joined_or_zeros(const OptionalTensor& S, const OptionalTensor& z, const at::Tensor& k, const at::Tensor& v) {
  if (S) {
    return join_state(*S, *z);
  }
  return at::zeros_symint({k.sym_size(0), k.sym_size(2), k.sym_size(3), v.sym_size(3) + 1},
                          k.options().dtype(accumulate_type(k.scalar_type())));
}

DecayPowers::DecayPowers(const at::Tensor& decay, int64_t chunk, bool derivative) {
  const auto count = at::arange(chunk + 1, decay.options());
  const auto base = decay.unsqueeze(1);  // (H, 1)
  // powers[h, n] = decay^n, or n decay^(n - 1) with the exponent kept from falling below 0 where the factor n is 0 anyway.
  const auto powers = derivative ? count * base.pow((count - 1).clamp_min(0)) : base.pow(count);  // (H, C + 1)
  const auto position = at::arange(chunk, decay.options().dtype(at::kLong));
  const auto distance = (position.unsqueeze(1) - position).clamp_min(0);  // (C, C)
  within = powers.index_select(1, distance.view(-1)).view({decay.size(0), 1, chunk, chunk}).tril();
  from_start = powers.narrow(1, 1, chunk).unsqueeze(1).unsqueeze(-1);
  to_end = powers.narrow(1, 0, chunk).flip(1).unsqueeze(1).unsqueeze(-1);
  whole = powers.narrow(1, chunk, 1).unsqueeze(-1);
}

}  // namespace detail

Form parse_form(const char* op, std::string_view name) {
  if (name == "parallel") {
    return Form::kParallel;
  }
  if (name == "chunkwise") {
    return Form::kChunkwise;
  }
  G2C_CHECK_VALUE(name == "recurrent", "{}: form must be 'parallel', 'chunkwise' or 'recurrent', got '{}'", op, name);
  return Form::kRecurrent;
}

std::tuple<at::Tensor, RecurrentState> linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                        const at::Tensor& decay, const std::optional<RecurrentState>& initial_state,
                                                        Form form, const LinearAttentionOptions& options) {
  const auto S = initial_state ? std::optional(initial_state->S) : std::nullopt;
  const auto z = initial_state ? std::optional(initial_state->z) : std::nullopt;
  if (form == Form::kParallel) {
    auto [out, final_S, final_z] = detail::parallel_op().call(q, k, v, decay, S, z, options.normalize, options.eps);
    return {out, {final_S, final_z}};
  }
  if (form == Form::kRecurrent) {
    auto [out, final_S, final_z, normalizer] = detail::recurrent_op().call(q, k, v, decay, S, z, options.normalize, options.eps);
    return {out, {final_S, final_z}};
  }
  auto [out, final_S, final_z, normalizer] =
      detail::chunkwise_op().call(q, k, v, decay, S, z, options.normalize, options.eps, detail::kDefaultChunkSize);
  return {out, {final_S, final_z}};
}

std::tuple<at::Tensor, RecurrentState> linear_attention_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                             const at::Tensor& decay, const RecurrentState& state,
                                                             const LinearAttentionOptions& options) {
  auto [out, S, z] = detail::step_op().call(q, k, v, decay, state.S, state.z, options.normalize, options.eps);
  return {out, {S, z}};
}

TORCH_LIBRARY_FRAGMENT(g2c, m) {
  m.def(
      "linear_attention_parallel(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? initial_S=None, Tensor? initial_z=None, "
      "bool normalize=True, float eps=1e-6) -> (Tensor out, Tensor S, Tensor z)");
  m.def(
      "linear_attention_recurrent(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? initial_S=None, Tensor? initial_z=None, "
      "bool normalize=True, float eps=1e-6) -> (Tensor out, Tensor S, Tensor z, Tensor normalizer)");
  m.def(
      "linear_attention_chunkwise(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? initial_S=None, Tensor? initial_z=None, "
      "bool normalize=True, float eps=1e-6, int chunk_size=64) -> (Tensor out, Tensor S, Tensor z, Tensor normalizer)");
  m.def(
      "linear_attention_chunkwise_backward(Tensor? grad_out, Tensor? grad_S, Tensor? grad_z, Tensor q, Tensor k, Tensor v, Tensor decay, "
      "Tensor? initial_S, Tensor? initial_z, Tensor out, Tensor normalizer, bool normalize, int chunk_size) "
      "-> (Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_decay, Tensor grad_initial_S, Tensor grad_initial_z)");
  m.def(
      "linear_attention_step(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor S, Tensor z, bool normalize=True, float eps=1e-6) "
      "-> (Tensor out, Tensor S_next, Tensor z_next)");
}

}  // namespace g2c::ops
