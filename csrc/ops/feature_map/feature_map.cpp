#include "ops/feature_map/feature_map.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <limits>

#include "core/check.h"

namespace g2c::ops {
namespace {

double smallest_subnormal(at::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "smallest_subnormal",
                                         [] { return static_cast<double>(std::numeric_limits<scalar_t>::denorm_min()); });
}

// Built from differentiable ops, so first and second derivatives come from autograd.
at::Tensor feature_map_any(const at::Tensor& x) {
  G2C_CHECK_TYPE(at::isFloatingType(x.scalar_type()), "feature_map: x must be floating point, got {}", toString(x.scalar_type()));
  // elu(x) + 1 would cancel to 0 for very negative x; exp(x) does not. The clamp keeps the branch not taken finite, since
  // autograd multiplies its gradient by 0. Below the range of exp the floor keeps phi positive.
  const auto negative = at::clamp_min(at::exp(at::clamp_max(x, 0)), smallest_subnormal(x.scalar_type()));
  return at::where(x < 0, negative, x + 1);
}

}  // namespace

at::Tensor feature_map(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("g2c::feature_map", "").typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

at::Tensor feature_map_slope(const at::Tensor& x, const at::Tensor& phi) { return at::where(x < 0, phi, at::ones_like(phi)); }

TORCH_LIBRARY_FRAGMENT(g2c, m) { m.def("feature_map(Tensor x) -> Tensor"); }

TORCH_LIBRARY_IMPL(g2c, CompositeImplicitAutograd, m) { m.impl("feature_map", TORCH_FN(feature_map_any)); }

}  // namespace g2c::ops
