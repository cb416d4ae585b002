#include "bindings/casters.h"
#include "core/check.h"
#include "models/language_model.h"
#include "nn/embeddings.h"
#include "nn/heads.h"

namespace g2c::bindings {
namespace {

template <typename Impl, typename Base = torch::nn::Module>
using Class = py::class_<Impl, Base, std::shared_ptr<Impl>>;

using OptionalDevice = std::optional<torch::Device>;

}  // namespace

// Each class has `arguments`, what its constructor needs to make another like it.
void bind_modules(py::module_& m) {
  py::module_::import("torch");  // binds torch::nn::Module

  Class<torch::nn::LinearImpl>(m, "Linear", py::module_local())
      .def(py::init([](int64_t in_features, int64_t out_features) {
        return std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(in_features, out_features));
      }))
      .def("forward", &torch::nn::LinearImpl::forward)
      .def_property_readonly("arguments", [](const torch::nn::LinearImpl& self) {
        return py::make_tuple(self.options.in_features(), self.options.out_features());
      });
  Class<torch::nn::LayerNormImpl>(m, "LayerNorm", py::module_local())
      .def(py::init([](int64_t embedding_dim, double eps) {
        check_positive("LayerNorm", "embedding_dim", embedding_dim);
        return std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({embedding_dim}).eps(eps));
      }))
      .def("forward", &torch::nn::LayerNormImpl::forward)
      .def_property_readonly("arguments", [](const torch::nn::LayerNormImpl& self) {
        return py::make_tuple(self.options.normalized_shape().front(), self.options.eps());
      });
  Class<torch::nn::ModuleListImpl>(m, "ModuleList", py::module_local());

  Class<nn::TokenEmbeddingImpl>(m, "TokenEmbedding")
      .def(py::init<int64_t, int64_t>())
      .def("forward", &nn::TokenEmbeddingImpl::forward)
      .def_property_readonly("arguments",
                             [](const nn::TokenEmbeddingImpl& self) { return py::make_tuple(self.vocab_size, self.embedding_dim); });
  Class<nn::LearnedPositionalEmbeddingImpl>(m, "LearnedPositionalEmbedding")
      .def(py::init<int64_t, int64_t>())
      .def("forward", &nn::LearnedPositionalEmbeddingImpl::forward)
      .def_property_readonly(
          "arguments", [](const nn::LearnedPositionalEmbeddingImpl& self) { return py::make_tuple(self.max_seq_len, self.embedding_dim); });
  Class<nn::FeedForwardImpl>(m, "FeedForward")
      .def(py::init<int64_t, std::optional<int64_t>>())
      .def("forward", &nn::FeedForwardImpl::forward)
      .def_property_readonly("arguments",
                             [](const nn::FeedForwardImpl& self) { return py::make_tuple(self.embedding_dim, self.hidden_dim); });

  Class<nn::LinearAttentionImpl>(m, "LinearAttention")
      .def(py::init<int64_t, int64_t, std::optional<std::string>>())
      .def("forward", &nn::LinearAttentionImpl::forward)
      .def("step", &nn::LinearAttentionImpl::step)
      .def("init_state", [](const nn::LinearAttentionImpl& self, int64_t batch_size,
                            OptionalDevice device) { return self.init_state(batch_size, device); })
      .def("decay", &nn::LinearAttentionImpl::decay)
      .def_property_readonly(
          "arguments", [](const nn::LinearAttentionImpl& self) { return py::make_tuple(self.embedding_dim, self.num_heads, self.form); });
  Class<nn::MultiHeadAttentionImpl>(m, "MultiHeadAttention")
      .def(py::init<int64_t, int64_t, bool>())
      .def("forward", &nn::MultiHeadAttentionImpl::forward)
      .def("attention_weights", &nn::MultiHeadAttentionImpl::attention_weights)
      .def("forward_cached", &nn::MultiHeadAttentionImpl::forward_cached)
      .def_property_readonly("arguments", [](const nn::MultiHeadAttentionImpl& self) {
        return py::make_tuple(self.embedding_dim, self.num_heads, self.causal);
      });
  m.attr("EPS") = nn::LinearAttentionImpl::kEps;
  m.def("split_heads", &nn::split_heads);
  m.def("merge_heads", &nn::merge_heads);

  Class<nn::BlockImpl>(m, "Block")
      .def(py::init<int64_t, int64_t, std::string, std::optional<int64_t>>())
      .def("forward", &nn::BlockImpl::forward)
      .def_property_readonly("arguments", [](const nn::BlockImpl& self) {
        return py::make_tuple(self.embedding_dim, self.num_heads, self.kind, self.hidden_dim);
      });

  using models::HybridTransformerLMImpl;
  using models::TransformerLMImpl;
  Class<HybridTransformerLMImpl>(m, "HybridTransformerLM")
      .def(py::init<int64_t, int64_t, std::vector<std::string>, int64_t, int64_t, std::optional<int64_t>>())
      .def("forward", &HybridTransformerLMImpl::forward)
      .def("init_state", &HybridTransformerLMImpl::init_state)
      .def("forward_step", &HybridTransformerLMImpl::forward_step)
      .def_property_readonly("arguments", [](const HybridTransformerLMImpl& self) {
        return py::make_tuple(self.vocab_size, self.embedding_dim, self.layer_pattern, self.num_heads, self.max_seq_len, self.hidden_dim);
      });
  Class<TransformerLMImpl, HybridTransformerLMImpl>(m, "TransformerLM")
      .def(py::init<int64_t, int64_t, int64_t, int64_t, int64_t, std::optional<int64_t>>())
      .def("empty_kv_cache", &TransformerLMImpl::empty_kv_cache)
      .def("forward_cached", &TransformerLMImpl::forward_cached)
      .def_property_readonly("arguments", [](const TransformerLMImpl& self) {
        return py::make_tuple(self.vocab_size, self.embedding_dim, self.num_layers(), self.num_heads, self.max_seq_len, self.hidden_dim);
      });
}

}  // namespace g2c::bindings
