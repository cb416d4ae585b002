#include "bindings/casters.h"
#include "models/language_model.h"

namespace g2c::bindings {
namespace {

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; }

nn::LayerKVCache make_cache(const std::optional<at::Tensor>& keys, const std::optional<at::Tensor>& values) {
  return {keys.value_or(at::Tensor()), values.value_or(at::Tensor())};
}

template <typename State>
void bind_copying(py::class_<State>& type) {
  // A plain copy shares memory, yet neither is changed by what the other does.
  type.def("__copy__", [](const State& self) { return State(self); });
  type.def("__deepcopy__", [](const State& self, const py::dict&) { return self.clone(); });
}

}  // namespace

void bind_states(py::module_& m) {
  using nn::KVCache;
  using nn::LayerKVCache;

  auto layer = py::class_<LayerKVCache>(m, "LayerKVCache")
                   .def(py::init(&make_cache), py::arg("keys") = py::none(), py::arg("values") = py::none())
                   .def("append", &LayerKVCache::append, py::arg("k"), py::arg("v"), py::return_value_policy::reference)
                   .def_property_readonly("length", &LayerKVCache::length)
                   .def_property_readonly("keys", [](const LayerKVCache& self) { return if_defined(self.keys()); })
                   .def_property_readonly("values", [](const LayerKVCache& self) { return if_defined(self.values()); })
                   .def("__repr__", [](const LayerKVCache& self) { return "LayerKVCache(length=" + std::to_string(self.length()) + ")"; })
                   .def(py::pickle(
                       [](const LayerKVCache& self) {
                         const auto own = self.clone();
                         return py::make_tuple(if_defined(own.keys()), if_defined(own.values()));
                       },
                       [](const py::tuple& state) {
                         return make_cache(state[0].cast<std::optional<at::Tensor>>(), state[1].cast<std::optional<at::Tensor>>());
                       }));
  bind_copying(layer);

  auto cache =
      py::class_<KVCache>(m, "KVCache")
          .def_static(
              "empty", [](int64_t num_layers) { return KVCache(num_layers); }, py::arg("num_layers"))
          .def_property_readonly("length", &KVCache::length)
          .def_readonly("layers", &KVCache::layers)
          .def("__repr__",
               [](const KVCache& self) {
                 return "KVCache(num_layers=" + std::to_string(self.layers.size()) + ", length=" + std::to_string(self.length()) + ")";
               })
          .def(py::pickle([](const KVCache& self) { return py::make_tuple(self.layers); },
                          [](const py::tuple& state) {
                            auto layers = state[0].cast<std::vector<LayerKVCache>>();
                            KVCache cache(static_cast<int64_t>(layers.size()));
                            cache.layers = std::move(layers);
                            return cache;
                          }));
  bind_copying(cache);

  using models::HybridState;
  auto hybrid =
      py::class_<HybridState>(m, "HybridState")
          .def(py::init([](std::vector<nn::LayerState> layers, int64_t batch_size, int64_t position) {
                 return HybridState{std::move(layers), batch_size, position};
               }),
               py::arg("layers"), py::arg("batch_size"), py::arg("position"))
          .def_readonly("layers", &HybridState::layers)
          .def_readonly("batch_size", &HybridState::batch_size)
          .def_readonly("position", &HybridState::position)
          .def("__repr__",
               [](const HybridState& self) {
                 return "HybridState(num_layers=" + std::to_string(self.layers.size()) + ", batch_size=" + std::to_string(self.batch_size) +
                        ", position=" + std::to_string(self.position) + ")";
               })
          .def(py::pickle(
              [](const HybridState& self) {
                const auto own = self.clone();
                return py::make_tuple(own.layers, own.batch_size, own.position);
              },
              [](const py::tuple& state) {
                return HybridState{state[0].cast<std::vector<nn::LayerState>>(), state[1].cast<int64_t>(), state[2].cast<int64_t>()};
              }));
  bind_copying(hybrid);
}

}  // namespace g2c::bindings
