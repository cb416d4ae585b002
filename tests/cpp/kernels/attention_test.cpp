#include "problem.h"

// Forward and backward against the token loop, in float32 and float64.
namespace g2c::kernels::testing {
namespace {

class Attention : public AtEachLevel {};
G2C_AT_EACH_LEVEL(Attention);

// The largest relative errors that issue 6 allows in float32. At small decays a gradient is the small difference of large sums.
void expect_exact(const Call& call, const std::string& what) {
  const Errors e = call.compare();
  double smallest_decay = 1;
  for (const double g : call.options.decay) {
    smallest_decay = std::min(smallest_decay, g);
  }
  const double gradient = smallest_decay >= 0.1 ? 5e-6 : 3e-5;
  EXPECT_LE(e.out, 1e-6) << what;
  EXPECT_LE(e.S, 1e-6) << what;
  EXPECT_LE(e.z, 1e-6) << what;
  EXPECT_LE(e.dq, gradient) << what;
  EXPECT_LE(e.dk, gradient) << what;
  EXPECT_LE(e.dv, gradient) << what;
  EXPECT_LE(e.dS, gradient) << what;
  EXPECT_LE(e.dz, gradient) << what;
  EXPECT_LE(e.dg, 2e-5) << what;
  EXPECT_TRUE(call.surroundings_untouched()) << what;
}

std::string describe(const Shape& s, const Options& o) {
  return text("B", s.batch, " T", s.time, " H", s.heads, " dk", s.dk, " dv", s.dv, o.states ? " with states" : "");
}

TEST_P(Attention, EqualsTheTokenLoopAtEveryLength) {
  for (const size_t time : {1, 2, 31, 32, 33, 63, 64, 65, 127, 1000}) {
    for (const bool states : {false, true}) {
      Options options;
      options.states = states;
      options.decay = {0.9, 0.99};
      // A first token alone has an output that hardly depends on q and k: without a state there is no gradient to compare with.
      options.normalize = states || time > 2;
      const Shape shape{1, time, 2, 24, 16};
      Call call(shape, options);
      call.run();
      expect_exact(call, describe(shape, options));
    }
  }
}

TEST_P(Attention, EqualsTheTokenLoopAtEverySize) {
  const size_t sizes[] = {1, 3, 8, 16, 20, 32, 64, 128};
  for (const size_t dk : sizes) {
    for (const size_t dv : sizes) {
      Options options;
      options.states = (dk + dv) % 2 == 0;
      // With one column of keys the numerator and the denominator grow together and the gradients cancel: see DividesOutASingleKeyColumn.
      options.normalize = dk > 1;
      options.decay = {0.95, 0.9, 0.99, 0.8};
      const Shape shape{1, 77, 4, dk, dv};
      Call call(shape, options);
      call.run();
      expect_exact(call, describe(shape, options));
    }
  }
}

TEST_P(Attention, EqualsTheTokenLoopAtEveryDecay) {
  for (const double g : {0.0, 1e-6, 0.01, 0.1, 0.5, 0.99, 1 - 1e-7, 1.0}) {
    for (const bool states : {false, true}) {
      Options options;
      options.states = states;
      options.decay = {g, g, g, g};
      // If a token all but forgets the past, its output hardly depends on q and k, and the normalized gradients are all rounding.
      options.normalize = g >= 0.01;
      const Shape shape{1, 130, 4, 32, 32};
      Call call(shape, options);
      call.run();
      expect_exact(call, text(describe(shape, options), " decay ", g));
    }
  }
}

TEST_P(Attention, DividesOutASingleKeyColumn) {
  Options options;
  options.decay = {0.9};
  Call call({1, 100, 1, 1, 5}, options);
  call.run();
  const Errors e = call.compare();
  EXPECT_LE(e.out, 1e-6);
  EXPECT_LE(e.dk, 5e-6);
  EXPECT_LE(e.dv, 5e-6);
}

TEST_P(Attention, ReadsAnyStrides) {
  for (const Array::Order order : {Array::Order::kBTHD, Array::Order::kBHTD, Array::Order::kDimOutermost}) {
    Options options;
    options.order = order;
    options.states = true;
    options.decay = {0.3, 0.9, 1.0};
    for (const Shape& shape : {Shape{2, 70, 3, 16, 16}, Shape{2, 45, 3, 7, 10}}) {
      Call call(shape, options);
      call.run();
      expect_exact(call, describe(shape, options));
    }
  }
}

TEST_P(Attention, ServesBothFeatureMapsWithAndWithoutNormalization) {
  for (const bool elu : {false, true}) {
    for (const bool normalize : {false, true}) {
      if (!elu && normalize) {
        continue;  // a denominator of either sign has no bound on its error
      }
      Options options;
      options.elu = elu;
      options.normalize = normalize;
      options.states = true;
      options.decay = {0.8};
      const Shape shape{2, 100, 1, 20, 12};
      Call call(shape, options);
      call.run();
      expect_exact(call, describe(shape, options));
    }
  }
}

TEST_P(Attention, IsExactInDouble) {
  for (const size_t time : {1, 33, 100}) {
    for (const double g : {0.0, 0.5, 1.0}) {
      Options options;
      options.type = ElementType::kFloat64;
      options.states = true;
      options.decay = {g, 0.97};
      Call call({2, time, 2, 19, 8}, options);
      call.run();
      const Errors e = call.compare();
      for (const double error : {e.out, e.S, e.z, e.dq, e.dk, e.dv, e.dg, e.dS, e.dz}) {
        EXPECT_LE(error, 1e-12) << time << " tokens, decay " << g;
      }
      EXPECT_TRUE(call.surroundings_untouched());
    }
  }
}

TEST_P(Attention, StaysExactOverLongSequences) {
  for (const double g : {0.01, 0.9, 1.0}) {
    Options options;
    options.decay = {g};
    const Shape shape{1, 8192, 1, 16, 16};
    Call call(shape, options);
    call.run();
    expect_exact(call, text(describe(shape, options), " decay ", g));
  }
}

TEST_P(Attention, WithoutDecayEqualsADecayOfOne) {
  Options options;
  Call without({1, 90, 2, 16, 16}, options);
  options.decay = {1, 1};
  Call with({1, 90, 2, 16, 16}, options);
  without.run();
  with.run();
  EXPECT_EQ(without.out.head(0, 0, 90, 1), with.out.head(0, 0, 90, 1));
  EXPECT_EQ(without.dq.head(0, 0, 90, 1), with.dq.head(0, 0, 90, 1));
}

TEST_P(Attention, ReturnsTheInitialStateOfNoTokens) {
  Options options;
  options.states = true;
  options.decay = {0.5};
  options.sequences = {{0, 0, 0}, {0, 0, 40}, {0, 40, 40}};
  const Shape shape{1, 40, 1, 8, 4};
  Call call(shape, options);
  call.run();
  expect_exact(call, describe(shape, options));
  EXPECT_TRUE(std::equal(call.S0.begin(), call.S0.begin() + 32, call.S.begin()));
  EXPECT_TRUE(std::equal(call.grad_S.begin(), call.grad_S.begin() + 32, call.grad_S0.begin()));
}

}  // namespace
}  // namespace g2c::kernels::testing
