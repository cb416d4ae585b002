#include "problem.h"

// Masks, packed sequences, threads, narrow types, and values that are not finite.
namespace g2c::kernels::testing {
namespace {

class Robustness : public AtEachLevel {};
G2C_AT_EACH_LEVEL(Robustness);

std::vector<char> random_mask(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<char> mask(size);
  for (char& kept : mask) {
    kept = random() % 3 != 0;
  }
  return mask;
}

void expect_small(const Errors& e, double output, double gradient, double decay) {
  EXPECT_LE(e.out, output);
  EXPECT_LE(e.S, output);
  EXPECT_LE(e.z, output);
  EXPECT_LE(e.dq, gradient);
  EXPECT_LE(e.dk, gradient);
  EXPECT_LE(e.dv, gradient);
  EXPECT_LE(e.dS, gradient);
  EXPECT_LE(e.dz, gradient);
  EXPECT_LE(e.dg, decay);
}

TEST_P(Robustness, MaskedTokensLeaveTheStateAndGetZeros) {
  for (const size_t dim : {16, 10}) {
    Options options;
    options.states = true;
    options.decay = {0.7, 0.95};
    options.mask = random_mask(2 * 150, 3);
    std::fill_n(options.mask.begin(), 40, 0);  // left padding of more than a chunk
    Call call({2, 150, 2, dim, dim}, options);
    call.run();
    expect_small(call.compare(), 1e-6, 5e-6, 2e-5);
    EXPECT_TRUE(call.surroundings_untouched());
    for (size_t t = 0; t < 40; ++t) {
      for (const Array* result : {&call.out, &call.dq, &call.dk, &call.dv}) {
        EXPECT_EQ(result->get(0, t, 1, 3), 0);
      }
    }
  }
}

TEST_P(Robustness, MaskedTokensMayHoldAnything) {
  Options options;
  options.decay = {0.9};
  options.mask = random_mask(100, 4);
  const Shape shape{1, 100, 1, 16, 16};
  Call clean(shape, options);
  Call dirty(shape, options);
  for (size_t t = 0; t < shape.time; ++t) {
    if (options.mask[t] == 0) {
      for (Array* array : {&dirty.q, &dirty.k, &dirty.v, &dirty.grad_out}) {
        array->set(0, t, 0, 2, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  clean.run();
  dirty.run();
  EXPECT_EQ(clean.out.head(0, 0, 100, 0), dirty.out.head(0, 0, 100, 0));
  EXPECT_EQ(clean.dq.head(0, 0, 100, 0), dirty.dq.head(0, 0, 100, 0));
  EXPECT_EQ(clean.dk.head(0, 0, 100, 0), dirty.dk.head(0, 0, 100, 0));
  EXPECT_EQ(clean.dv.head(0, 0, 100, 0), dirty.dv.head(0, 0, 100, 0));
}

TEST_P(Robustness, EverythingMaskedReturnsTheInitialState) {
  Options options;
  options.states = true;
  options.mask.assign(33, 0);
  Call call({1, 33, 1, 8, 8}, options);
  call.run();
  EXPECT_EQ(call.S, call.S0);
  EXPECT_EQ(call.grad_S0, call.grad_S);
  EXPECT_EQ(call.out.head(0, 0, 33, 0), std::vector<double>(33 * 8));
}

TEST_P(Robustness, PackedSequencesDoNotSeeEachOther) {
  Options options;
  options.states = true;
  options.decay = {0.9, 1.0};
  options.sequences = {{0, 0, 5}, {0, 5, 5}, {0, 5, 80}, {0, 80, 112}, {0, 112, 113}};
  Call call({1, 113, 2, 16, 8}, options);
  call.run();
  expect_small(call.compare(), 1e-6, 5e-6, 2e-5);
}

TEST_P(Robustness, ThreadsOverHeadsChangeNothing) {
  Options options;
  options.states = true;
  options.decay = {0.9, 0.8, 0.7, 0.6, 0.5};
  const Shape shape{2, 70, 5, 16, 16};
  Call one(shape, options);
  options.threads = 3;
  Call three(shape, options);
  one.run();
  three.run();
  for (size_t h = 0; h < 5; ++h) {
    EXPECT_EQ(one.out.head(1, 0, 70, h), three.out.head(1, 0, 70, h));
    EXPECT_EQ(one.dq.head(1, 0, 70, h), three.dq.head(1, 0, 70, h));
    EXPECT_EQ(one.dk.head(1, 0, 70, h), three.dk.head(1, 0, 70, h));
    EXPECT_EQ(one.dv.head(1, 0, 70, h), three.dv.head(1, 0, 70, h));
  }
  EXPECT_EQ(one.S, three.S);
  EXPECT_EQ(one.grad_S0, three.grad_S0);
  EXPECT_EQ(one.grad_decay, three.grad_decay);
}

TEST_P(Robustness, ThreadsOverTimeAreExactToo) {
  for (const int count : {2, 3, 5}) {
    for (const bool masked : {false, true}) {
      // Long enough for several windows: their states are large.
      Options options;
      options.threads = count;
      options.states = true;
      options.decay = {0.97};
      const Shape shape{1, 3000, 1, 72, 64};
      if (masked) {
        options.mask = random_mask(shape.time, 5);
      }
      Call call(shape, options);
      call.run();
      expect_small(call.compare(), 1e-6, 5e-6, 2e-5);
      options.threads = 1;
      Call one(shape, options);
      one.run();
      EXPECT_LE(relative_error(call.out.head(0, 0, 3000, 0), one.out.head(0, 0, 3000, 0)), 1e-6);
      EXPECT_LE(relative_error(call.dk.head(0, 0, 3000, 0), one.dk.head(0, 0, 3000, 0)), 1e-6);
      EXPECT_LE(relative_error(call.S, one.S), 1e-6);
      EXPECT_LE(relative_error(call.grad_S0, one.grad_S0), 1e-6);
    }
  }
}

TEST_P(Robustness, NarrowTypesAddUpInSinglePrecision) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    const double rounding = type == ElementType::kBFloat16 ? 0x1p-8 : 0x1p-11;
    for (const size_t dim : {16, 11}) {
      Options options;
      options.type = type;
      options.states = true;
      options.decay = {0.9};
      Call call({1, 50, 1, dim, dim}, options);
      call.run();
      const Errors e = call.compare();
      EXPECT_LE(e.S, 1e-6);
      EXPECT_LE(e.z, 1e-6);
      EXPECT_LE(e.out, rounding);
      // The output that the backward gets has been rounded.
      expect_small(e, rounding, 4 * rounding, 8 * rounding);
      EXPECT_TRUE(call.surroundings_untouched());
    }
  }
}

TEST_P(Robustness, OnesInHalfPrecisionAverageToOne) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    Options options;
    options.type = type;
    const Shape shape{1, 70000, 1, 1, 1};
    Call call(shape, options);
    for (Array* array : {&call.q, &call.k, &call.v}) {
      array->fill([] { return 1.0; });
    }
    call.run();
    EXPECT_EQ(call.out.get(0, 69999, 0, 0), 1);
    EXPECT_NEAR(call.S[0], 140000, 1);
  }
}

TEST_P(Robustness, HalvesAreRoundedToNearestEven) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    // out_t = v_0 for each t, with v_0 a float32 state: identity map, no decay, k and v zero.
    for (const double x : {1.0 + 0x1p-11, 1.0 + 3 * 0x1p-11, 1.0 + 0x1p-8, 1.0 + 3 * 0x1p-9, -0.1, 65519.0, 3e-8, 5e-8, 6.1e-5, 1e-30, 0.0}) {
      for (const size_t dim : {1, 17}) {
        Options options;
        options.type = type;
        options.elu = false;
        options.normalize = false;
        options.states = true;
        Call call({1, 1, 1, 1, dim}, options);
        call.q.fill([] { return 1.0; });
        call.k.fill([] { return 0.0; });
        call.v.fill([] { return 0.0; });
        call.S0.assign(dim, x);
        call.run();
        const double rounded = half_to_double(nearest_half(static_cast<double>(static_cast<float>(x)), type), type);
        EXPECT_EQ(call.out.get(0, 0, 0, dim - 1), rounded) << x;
      }
    }
  }
}

// Where the token loop has NaN or infinity, so has the kernel, and nowhere else; the rest stays exact.
TEST_P(Robustness, NonFiniteValuesReachWhatTheyShouldAndNothingElse) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const size_t dims[] = {16, 5};
  for (const size_t dim : dims) {
    for (const bool normalize : {false, true}) {
      for (const double bad : {nan, inf, -inf}) {
        for (int where = 0; where < 4; ++where) {
          for (const size_t t : {0, 13, 40, 63}) {
            Options options;
            options.normalize = normalize;
            options.decay = {0.9};
            options.seed = static_cast<unsigned>(t + 1);
            const Shape shape{1, 64, 1, dim, dim};
            Call call(shape, options);
            Array* const arrays[] = {&call.q, &call.k, &call.v, &call.grad_out};
            arrays[where]->set(0, t, 0, 3, bad);
            call.run();
            const Errors e = call.compare();
            const std::string what = text("dim ", dim, normalize ? " normalized " : " plain ", bad, " in array ", where, " at token ", t);
            EXPECT_LE(e.out, 1e-6) << what;
            EXPECT_LE(e.dq, 5e-5) << what;
            EXPECT_LE(e.dk, 5e-5) << what;
            EXPECT_LE(e.dv, 5e-5) << what;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace g2c::kernels::testing
