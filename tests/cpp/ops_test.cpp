#include "ops/linear_attention/linear_attention.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/feature_map/feature_map.h"

namespace g2c {
namespace {

using ops::Form;

struct Inputs {
  torch::Tensor q, k, v, decay;
};

Inputs make_inputs(int64_t tokens) {
  torch::manual_seed(0);
  const auto random = [&](int64_t width) { return torch::randn({2, tokens, 3, width}, torch::kDouble); };
  return {random(4), random(4), random(5), torch::tensor({0.0, 0.7, 1.0}, torch::kDouble)};
}

// One token after the other, out of nothing but the definition.
torch::Tensor loop(const Inputs& x) {
  auto S = torch::zeros({2, 3, 4, 5}, torch::kDouble);
  auto z = torch::zeros({2, 3, 4}, torch::kDouble);
  std::vector<torch::Tensor> outputs;
  for (int64_t t = 0; t < x.q.size(1); ++t) {
    const auto phi_q = torch::elu(x.q.select(1, t)) + 1;
    const auto phi_k = torch::elu(x.k.select(1, t)) + 1;
    S = S * x.decay.view({3, 1, 1}) + torch::einsum("bhk,bhv->bhkv", {phi_k, x.v.select(1, t)});
    z = z * x.decay.view({3, 1}) + phi_k;
    outputs.push_back(torch::einsum("bhk,bhkv->bhv", {phi_q, S}) / (torch::einsum("bhk,bhk->bh", {phi_q, z}) + 1e-6).unsqueeze(-1));
  }
  return torch::stack(outputs, 1);
}

TEST(LinearAttentionOp, EveryFormFollowsTheDefinition) {
  for (const int64_t tokens : {1, 64, 131}) {
    const auto x = make_inputs(tokens);
    const auto expected = loop(x);
    for (const auto form : {Form::kParallel, Form::kChunkwise, Form::kRecurrent}) {
      const auto [out, state] = ops::linear_attention(x.q, x.k, x.v, x.decay, std::nullopt, form);
      EXPECT_TRUE(torch::allclose(out, expected, 1e-10, 1e-12)) << tokens;
      EXPECT_EQ(state.S.sizes(), (std::vector<int64_t>{2, 3, 4, 5}));
    }
  }
}

TEST(LinearAttentionOp, StateCarriesASequenceOn) {
  const auto x = make_inputs(70);
  const auto [whole, last] = ops::linear_attention(x.q, x.k, x.v, x.decay, std::nullopt, Form::kChunkwise);
  const auto head = [](const torch::Tensor& t) { return t.narrow(1, 0, 69); };
  const auto [first, state] = ops::linear_attention(head(x.q), head(x.k), head(x.v), x.decay, std::nullopt, Form::kChunkwise);
  const auto [out, next] = ops::linear_attention_step(x.q.select(1, 69), x.k.select(1, 69), x.v.select(1, 69), x.decay, state);
  EXPECT_TRUE(torch::allclose(out, whole.select(1, 69)));
  EXPECT_TRUE(torch::allclose(next.S, last.S));
  EXPECT_TRUE(torch::allclose(next.z, last.z));
}

TEST(LinearAttentionOp, ErrorsNameTheArgument) {
  auto x = make_inputs(5);
  x.decay = torch::full({3}, 1.5, torch::kDouble);
  try {
    ops::linear_attention(x.q, x.k, x.v, x.decay, std::nullopt, Form::kChunkwise);
    FAIL() << "decay 1.5 was taken";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("decay must lie in [0, 1], got 1.5"), std::string::npos);
  }
  EXPECT_THROW(ops::parse_form("op", "fast"), c10::ValueError);
}

TEST(FeatureMapOp, StaysPositiveWhereEluPlusOneWouldCancel) {
  const auto x = torch::tensor({-30.0F, -1.0F, 0.0F, 2.0F});
  const auto expected = torch::tensor({std::exp(-30.0F), std::exp(-1.0F), 1.0F, 3.0F});
  EXPECT_TRUE(torch::allclose(ops::feature_map(x), expected, 1e-6, 0));
}

}  // namespace
}  // namespace g2c
