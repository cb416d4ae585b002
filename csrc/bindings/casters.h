#pragma once

// The only folder that knows Python: torch/python.h is included here and nowhere else.
#include <torch/python.h>

#include <optional>

#include "core/recurrent_state.h"

namespace pybind11::detail {

// A RecurrentState is a NamedTuple (S, z) in Python; any pair of tensors is taken for one.
template <>
struct type_caster<g2c::RecurrentState> {
  PYBIND11_TYPE_CASTER(g2c::RecurrentState, const_name("tuple[torch.Tensor, torch.Tensor]"));

  bool load(handle source, bool) {
    if (!isinstance<sequence>(source) || len(source) != 2) {
      return false;
    }
    const auto pair = reinterpret_borrow<sequence>(source);
    if (!THPVariable_Check(object(pair[0]).ptr()) || !THPVariable_Check(object(pair[1]).ptr())) {
      return false;
    }
    value = {pair[0].cast<at::Tensor>(), pair[1].cast<at::Tensor>()};
    return true;
  }

  static handle cast(const g2c::RecurrentState& state, return_value_policy, handle) {
    return module_::import("g2c.linear_attention.state").attr("RecurrentState")(state.S, state.z).release();
  }
};

}  // namespace pybind11::detail

namespace g2c::bindings {

namespace py = pybind11;

void bind_slots(py::module_& m);
void bind_states(py::module_& m);
void bind_modules(py::module_& m);

}  // namespace g2c::bindings
