#include <torch/csrc/autograd/python_variable.h>

#include "bindings/casters.h"
#include "core/check.h"
#include "models/language_model.h"
#include "nn/embeddings.h"

namespace g2c::bindings {
namespace {

// The members in which a module of each kind holds its own parameters, by the names they are registered under.
std::vector<std::pair<std::string, at::Tensor*>> members_of(torch::nn::Module& module) {
  if (auto* linear = module.as<torch::nn::LinearImpl>()) {
    return {{"weight", &linear->weight}, {"bias", &linear->bias}};
  }
  if (auto* norm = module.as<torch::nn::LayerNormImpl>()) {
    return {{"weight", &norm->weight}, {"bias", &norm->bias}};
  }
  if (auto* embedding = module.as<nn::TokenEmbeddingImpl>()) {
    return {{"weight", &embedding->weight}};
  }
  if (auto* embedding = module.as<nn::LearnedPositionalEmbeddingImpl>()) {
    return {{"weight", &embedding->weight}};
  }
  if (auto* attention = module.as<nn::LinearAttentionImpl>()) {
    return {{"gamma_logit", &attention->gamma_logit}};
  }
  if (auto* model = dynamic_cast<models::HybridTransformerLMImpl*>(&module)) {
    return {{"head_bias", &model->head_bias}};
  }
  TORCH_INTERNAL_ASSERT(module.parameters(/*recurse=*/false).empty(), "bindings do not know the parameters of ", module.name());
  return {};
}

// Where the parameters of a C++ module and its descendants live. bind() puts the Python module's present tensors there, so that
// replaced parameters (load_state_dict(assign=True), functional_call, parametrizations, another device) reach C++.
class Slots {
 public:
  explicit Slots(std::shared_ptr<torch::nn::Module> root) : root_(std::move(root)) {
    for (const auto& item : root_->named_modules()) {
      for (auto& [name, member] : members_of(*item.value())) {
        slots_.push_back({item.key(), py::str(name), member});
      }
    }
  }

  // (path of the module, name, tensor) of each slot, as C++ holds them now.
  std::vector<std::tuple<std::string, py::str, at::Tensor>> items() const {
    std::vector<std::tuple<std::string, py::str, at::Tensor>> items;
    for (const auto& slot : slots_) {
      items.emplace_back(slot.path, slot.name, *slot.member);
    }
    return items;
  }

  // `owners`: for each slot the Python module that has the parameter, and its _parameters.
  void bind(const py::list& owners) {
    G2C_CHECK_VALUE(owners.size() == slots_.size(), "bind: {} owners for {} parameters", owners.size(), slots_.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto& slot = slots_[i];
      const auto pair = py::reinterpret_borrow<py::tuple>(PyList_GET_ITEM(owners.ptr(), static_cast<Py_ssize_t>(i)));
      PyObject* found = PyDict_GetItem(pair[1].ptr(), slot.name.ptr());  // borrowed
      py::object computed;
      if (found == nullptr) {
        // torch.nn.utils.parametrize and prune make it an attribute instead.
        computed = pair[0].attr(slot.name);
        found = computed.ptr();
      }
      G2C_CHECK_TYPE(THPVariable_Check(found), "parameter '{}' must be a tensor, got {}", std::string(slot.name), Py_TYPE(found)->tp_name);
      const auto& tensor = THPVariable_Unpack(found);
      if (!slot.member->is_same(tensor)) {
        *slot.member = tensor;
      }
    }
  }

 private:
  struct Slot {
    std::string path;
    py::str name;
    at::Tensor* member;
  };
  std::shared_ptr<torch::nn::Module> root_;
  std::vector<Slot> slots_;
};

}  // namespace

void bind_slots(py::module_& m) {
  py::class_<Slots>(m, "Slots").def(py::init<std::shared_ptr<torch::nn::Module>>()).def("items", &Slots::items).def("bind", &Slots::bind);
  m.def("children", [](const torch::nn::Module& module) {
    std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> children;
    for (const auto& item : module.named_children()) {
      children.emplace_back(item.key(), item.value());
    }
    return children;
  });
}

}  // namespace g2c::bindings
