#include "problem.h"

// The step against the token loop, in place and beside, and the feature map value by value.
namespace g2c::kernels::testing {
namespace {

class Step : public AtEachLevel {};
G2C_AT_EACH_LEVEL(Step);

struct StepCall {
  ElementType type = ElementType::kFloat32;
  bool elu = true;
  bool normalize = true;
  bool in_place = false;
  int threads = 1;
  Shape shape;
};

template <typename T>
void check_step(const StepCall& c, double tolerance) {
  const Shape& s = c.shape;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const auto draw = [&] { return normal(random); };
  Array q(c.type, s.batch, 1, s.heads, s.dk), k(c.type, s.batch, 1, s.heads, s.dk), v(c.type, s.batch, 1, s.heads, s.dv), out(c.type, s.batch, 1, s.heads, s.dv);
  for (Array* array : {&q, &k, &v}) {
    array->fill(draw);
  }
  std::vector<T> S(s.batch * s.heads * s.dk * s.dv), z(s.batch * s.heads * s.dk), decay(s.heads);
  std::generate(S.begin(), S.end(), draw);
  std::generate(z.begin(), z.end(), [&] { return std::abs(normal(random)); });
  std::generate(decay.begin(), decay.end(), [&] { return static_cast<T>(random() % 100) / 99; });
  const std::vector<T> old_S = S, old_z = z;
  std::vector<T> new_S(S.size()), new_z(z.size());

  Problem problem;
  problem.type = c.type;
  problem.feature_map = c.elu ? FeatureMap::kElu1 : FeatureMap::kIdentity;
  problem.normalize = c.normalize;
  problem.heads = static_cast<int64_t>(s.heads);
  problem.key_dim = static_cast<int64_t>(s.dk);
  problem.value_dim = static_cast<int64_t>(s.dv);
  problem.decay = decay.data();
  StepTensors step;
  step.batch = static_cast<int64_t>(s.batch);
  step.q = q.input();
  step.k = k.input();
  step.v = v.input();
  step.out = out.output();
  step.S = S.data();
  step.z = z.data();
  step.new_S = c.in_place ? S.data() : new_S.data();
  step.new_z = c.in_place ? z.data() : new_z.data();
  linear_attention_step(problem, step, threads(c.threads));

  EXPECT_TRUE(out.surroundings_untouched());
  if (!c.in_place) {
    EXPECT_EQ(S, old_S);
    EXPECT_EQ(z, old_z);
  }
  const std::vector<T>& result_S = c.in_place ? S : new_S;
  const std::vector<T>& result_z = c.in_place ? z : new_z;
  for (size_t b = 0; b < s.batch; ++b) {
    for (size_t h = 0; h < s.heads; ++h) {
      const size_t state = b * s.heads + h;
      const auto slice = [&](const std::vector<T>& all, size_t size) {
        return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(state * size), all.begin() + static_cast<std::ptrdiff_t>((state + 1) * size));
      };
      Reference r;
      r.tokens = 1;
      r.dk = s.dk;
      r.dv = s.dv;
      r.g = static_cast<double>(decay[h]);
      r.elu = c.elu;
      r.normalize = c.normalize;
      r.q = q.head(b, 0, 1, h);
      r.k = k.head(b, 0, 1, h);
      r.v = v.head(b, 0, 1, h);
      r.S0 = slice(old_S, s.dk * s.dv);
      r.z0 = slice(old_z, s.dk);
      r.run();
      const double of_state = sizeof(T) == 8 ? 1e-14 : 5e-7;
      EXPECT_LE(relative_error(out.head(b, 0, 1, h), r.out), tolerance);
      EXPECT_LE(relative_error(slice(result_S, s.dk * s.dv), r.S), of_state);
      EXPECT_LE(relative_error(slice(result_z, s.dk), r.z), of_state);
    }
  }
}

TEST_P(Step, EqualsTheTokenLoopAtEverySize) {
  for (const size_t dk : {1, 3, 8, 16, 20, 32, 64, 128}) {
    for (const size_t dv : {1, 3, 8, 16, 20, 47, 64, 128, 160}) {
      check_step<float>({.in_place = (dk + dv) % 2 == 0, .shape = {2, 1, 3, dk, dv}}, 2e-6);
    }
  }
}

TEST_P(Step, ServesEveryTypeAndOption) {
  const Shape shape{2, 1, 9, 20, 24};
  check_step<double>({.type = ElementType::kFloat64, .shape = shape}, 1e-13);
  check_step<float>({.type = ElementType::kBFloat16, .shape = shape}, 0x1p-8);
  check_step<float>({.type = ElementType::kFloat16, .in_place = true, .shape = shape}, 0x1p-10);
  check_step<float>({.normalize = false, .shape = shape}, 2e-6);
  check_step<float>({.elu = false, .normalize = false, .shape = shape}, 2e-6);
  check_step<float>({.threads = 3, .shape = {4, 1, 9, 64, 64}}, 2e-6);
}

TEST_P(Step, ContinuesTheForward) {
  const Shape shape{1, 40, 2, 16, 16};
  Options options;
  options.decay = {0.9, 0.5};
  Call call(shape, options);
  call.run();
  std::vector<float> S(2 * 256), z(2 * 16), decay = {0.9f, 0.5f};
  Array out(ElementType::kFloat32, 1, 1, 2, 16);
  for (size_t t = 0; t < shape.time; ++t) {
    Problem problem;
    problem.heads = 2;
    problem.key_dim = 16;
    problem.value_dim = 16;
    problem.decay = decay.data();
    const auto at = [&](const Array& array) {
      Input view = array.input();
      view.data = static_cast<const float*>(view.data) + static_cast<int64_t>(t) * view.time;
      return view;
    };
    linear_attention_step(problem, {1, at(call.q), at(call.k), at(call.v), out.output(), S.data(), z.data(), S.data(), z.data()}, threads(1));
    for (size_t h = 0; h < 2; ++h) {
      EXPECT_LE(relative_error(out.head(0, 0, 1, h), call.out.head(0, t, t + 1, h)), 5e-6) << "token " << t;
    }
  }
  EXPECT_LE(relative_error(std::vector<double>(S.begin(), S.end()), call.S), 1e-6);
}

// With one column, k = 0 and v = 1 and a decay of 0, each output is f(q_t), and without a final state its gradient is f'(q_t).
TEST_P(Step, FeatureMapIsExactToTwoUnitsInTheLastPlace) {
  const size_t count = 20000;
  Options options;
  options.normalize = false;
  options.decay = {0.0};
  Call call({1, count, 1, 1, 1}, options);
  std::mt19937 random(11);
  std::uniform_real_distribution<double> spread(-87, 0);
  std::vector<double> xs = {0.0, -0.0, 1e-30, -1e-30, 5.0, 1e30, -1e-8, -87.0, -0.34657, -0.34658};
  while (xs.size() < count) {
    xs.push_back(static_cast<double>(static_cast<float>(xs.size() % 2 == 0 ? spread(random) : spread(random) / 40)));
  }
  for (size_t t = 0; t < count; ++t) {
    call.q.set(0, t, 0, 0, xs[t]);
  }
  call.k.fill([] { return 0.0; });
  call.v.fill([] { return 1.0; });
  call.grad_out.fill([] { return 1.0; });
  call.run();
  for (size_t t = 0; t < count; ++t) {
    const double x = static_cast<double>(static_cast<float>(xs[t]));
    const double f = x < 0 ? std::exp(x) : x + 1;
    const double unit = std::ldexp(1.0, std::ilogb(f) - 23);
    EXPECT_LE(std::abs(call.out.get(0, t, 0, 0) - f), 2 * unit) << x;
    EXPECT_LE(std::abs(call.dq.get(0, t, 0, 0) - (x < 0 ? f : 1)), 2 * std::min(unit, 0x1p-23)) << x;
  }
  EXPECT_EQ(call.dq.get(0, 0, 0, 0), 1);
  EXPECT_EQ(call.dq.get(0, 1, 0, 0), 1);
}

TEST_P(Step, FeatureMapIsNeverZero) {
  const std::vector<double> xs = {-88, -95, -100, -103, -104, -110, -1000, -3e38, -std::numeric_limits<double>::infinity()};
  Options options;
  options.normalize = false;
  options.decay = {0.0};
  Call call({1, xs.size(), 1, 1, 1}, options);
  for (size_t t = 0; t < xs.size(); ++t) {
    call.q.set(0, t, 0, 0, xs[t]);
  }
  call.k.fill([] { return 0.0; });
  call.v.fill([] { return 1.0; });
  call.run();
  for (size_t t = 0; t < xs.size(); ++t) {
    const double f = std::max(std::exp(xs[t]), 0x1p-149);
    EXPECT_NEAR(call.out.get(0, t, 0, 0), f, 0x1p-149 + f * 0x1p-22) << xs[t];
    EXPECT_GT(call.out.get(0, t, 0, 0), 0) << xs[t];
  }
}

}  // namespace
}  // namespace g2c::kernels::testing
