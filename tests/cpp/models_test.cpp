#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/language_model.h"

namespace g2c {
namespace {

using models::HybridTransformerLM;
using models::TransformerLM;

const std::vector<std::string> kPattern = {"linear", "full"};

TEST(HybridTransformerLM, StepsEqualForward) {
  torch::NoGradGuard no_grad;
  HybridTransformerLM model(20, 16, kPattern, 2, 80);
  const auto ids = torch::randint(20, {2, 80}, torch::kLong);
  const auto expected = model(ids);
  auto state = model->init_state(2);
  for (int64_t t = 0; t < 80; ++t) {
    auto [logits, next] = model->forward_step(ids.select(1, t), state);
    EXPECT_TRUE(torch::allclose(logits, expected.select(1, t), 1e-4, 1e-4)) << t;
    state = std::move(next);
  }
  EXPECT_THROW(model->forward_step(ids.select(1, 0), state), c10::ValueError);
}

TEST(HybridTransformerLM, TrainsInCpp) {
  torch::manual_seed(0);
  HybridTransformerLM model(20, 16, kPattern, 2, 12);
  const auto ids = torch::randint(20, {4, 13}, torch::kLong);
  const auto loss = [&] { return torch::cross_entropy_loss(model(ids.narrow(1, 0, 12)).flatten(0, 1), ids.narrow(1, 1, 12).flatten()); };
  const auto before = loss().item<double>();
  for (int step = 0; step < 20; ++step) {
    model->zero_grad();
    loss().backward();
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      parameter.sub_(parameter.grad(), 0.1);
    }
  }
  EXPECT_LT(loss().item<double>(), before - 0.1);
}

TEST(TransformerLM, CloneIsEqualAndApart) {
  TransformerLM model(20, 16, 2, 2, 12);
  const auto ids = torch::randint(20, {1, 5}, torch::kLong);
  const auto expected = model(ids);
  const auto copy = std::dynamic_pointer_cast<models::TransformerLMImpl>(model->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(torch::equal(copy->forward(ids), expected));
  {
    torch::NoGradGuard no_grad;
    copy->head_bias.add_(1);
  }
  EXPECT_TRUE(torch::equal(model(ids), expected));
}

TEST(LayerKVCache, CopiesShareTheBufferYetStayApart) {
  torch::NoGradGuard no_grad;
  const auto token = [](double value) { return torch::full({1, 2, 1, 4}, value); };
  nn::LayerKVCache cache;
  cache.append(token(0), token(0)).append(token(1), token(1));
  const auto kept = cache;
  auto fork = cache;
  cache.append(token(2), token(2));
  fork.append(token(3), token(3));
  EXPECT_EQ(kept.length(), 2);
  EXPECT_EQ(cache.keys().select(2, 2).max().item<double>(), 2);
  EXPECT_EQ(fork.keys().select(2, 2).max().item<double>(), 3);
  EXPECT_EQ(kept.keys().data_ptr(), cache.keys().data_ptr());
}

}  // namespace
}  // namespace g2c
