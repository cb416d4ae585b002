#pragma once

#include <memory>

#include "harness.h"

// A whole forward and backward call on random inputs, beside the reference.
namespace g2c::kernels::testing {

struct Shape {
  size_t batch = 1;
  size_t time = 64;
  size_t heads = 1;
  size_t dk = 16;
  size_t dv = 16;
};

struct Options {
  ElementType type = ElementType::kFloat32;
  Array::Order order = Array::Order::kBTHD;
  bool elu = true;
  bool normalize = true;
  bool states = false;       // with an initial state, and gradients of the final one
  std::vector<double> decay;  // (heads); empty: none
  std::vector<Sequence> sequences;  // empty: the whole rows
  std::vector<char> mask;           // (batch, time); empty: none
  int threads = 1;
  unsigned seed = 1;
};

// Relative errors of the results, each the largest over heads and sequences, in units of the largest value of the tensor.
struct Errors {
  double out = 0, S = 0, z = 0, dq = 0, dk = 0, dv = 0, dg = 0, dS = 0, dz = 0;
};

class Call {
 public:
  Call(const Shape& shape, Options options)
      : shape(shape),
        options(std::move(options)),
        q(keys()),
        k(keys()),
        v(values()),
        out(values()),
        grad_out(values()),
        dq(keys()),
        dk(keys()),
        dv(values()),
        random_(this->options.seed) {
    if (this->options.sequences.empty()) {
      for (size_t b = 0; b < shape.batch; ++b) {
        this->options.sequences.push_back({static_cast<int64_t>(b), 0, static_cast<int64_t>(shape.time)});
      }
    }
    std::normal_distribution<double> normal;
    const auto draw = [&] { return normal(random_); };
    for (Array* array : {&q, &k, &v, &grad_out}) {
      array->fill(draw);
    }
    const size_t states = this->options.sequences.size() * shape.heads;
    for (auto* matrix : {&S0, &S, &grad_S, &grad_S0}) {
      matrix->resize(states * shape.dk * shape.dv);
    }
    for (auto* vector : {&z0, &z, &grad_z, &grad_z0}) {
      vector->resize(states * shape.dk);
    }
    for (auto* given : {&S0, &grad_S, &grad_z}) {
      std::generate(given->begin(), given->end(), draw);
    }
    std::generate(z0.begin(), z0.end(), [&] { return std::abs(normal(random_)); });
    denominator.resize(shape.batch * shape.heads * shape.time);
    decay.assign(this->options.decay.begin(), this->options.decay.end());
    grad_decay.resize(shape.heads);
  }

  // Both kernels, on accumulators of type T. `backward` needs normalized outputs and denominators of the same call's forward.
  void run() {
    if (options.type == ElementType::kFloat64) {
      run_as<double>();
    } else {
      run_as<float>();
    }
  }

  // The reference for one head of one sequence, with this call's inputs.
  Reference reference(size_t sequence, size_t head) const {
    const Sequence& where = options.sequences[sequence];
    const auto b = static_cast<size_t>(where.batch), begin = static_cast<size_t>(where.begin), end = static_cast<size_t>(where.end);
    Reference r;
    r.tokens = end - begin;
    r.dk = shape.dk;
    r.dv = shape.dv;
    r.g = decay.empty() ? 1 : options.type == ElementType::kFloat64 ? decay[head] : static_cast<double>(static_cast<float>(decay[head]));
    r.elu = options.elu;
    r.normalize = options.normalize;
    r.q = q.head(b, begin, end, head);
    r.k = k.head(b, begin, end, head);
    r.v = v.head(b, begin, end, head);
    r.grad_out = grad_out.head(b, begin, end, head);
    for (size_t t = begin; t < end && !options.mask.empty(); ++t) {
      r.keep.push_back(options.mask[b * shape.time + t] != 0);
    }
    if (options.states) {
      r.S0 = part(S0, sequence, head, shape.dk * shape.dv);
      r.z0 = part(z0, sequence, head, shape.dk);
      r.dS = part(grad_S, sequence, head, shape.dk * shape.dv);
      r.dz = part(grad_z, sequence, head, shape.dk);
    }
    return r;
  }

  Errors compare() const {
    std::vector<double> got[9], want[9];
    std::vector<double> decays(shape.heads);
    for (size_t s = 0; s < options.sequences.size(); ++s) {
      const auto b = static_cast<size_t>(options.sequences[s].batch), begin = static_cast<size_t>(options.sequences[s].begin),
                 end = static_cast<size_t>(options.sequences[s].end);
      for (size_t h = 0; h < shape.heads; ++h) {
        Reference r = reference(s, h);
        r.run();
        const auto add = [&](size_t i, const std::vector<double>& ours, const std::vector<double>& theirs) {
          got[i].insert(got[i].end(), ours.begin(), ours.end());
          want[i].insert(want[i].end(), theirs.begin(), theirs.end());
        };
        add(0, out.head(b, begin, end, h), r.out);
        add(1, part(S, s, h, shape.dk * shape.dv), r.S);
        add(2, part(z, s, h, shape.dk), r.z);
        add(3, dq.head(b, begin, end, h), r.dq);
        add(4, dk.head(b, begin, end, h), r.dk_);
        add(5, dv.head(b, begin, end, h), r.dv_);
        add(6, part(grad_S0, s, h, shape.dk * shape.dv), r.dS0);
        add(7, part(grad_z0, s, h, shape.dk), r.dz0);
        decays[h] += r.dg;
      }
    }
    const auto error = [&](size_t i) { return relative_error(got[i], want[i]); };
    return {error(0), error(1), error(2), error(3), error(4), error(5), relative_error(grad_decay, decays), error(6), error(7)};
  }

  bool surroundings_untouched() const {
    return out.surroundings_untouched() && dq.surroundings_untouched() && dk.surroundings_untouched() && dv.surroundings_untouched();
  }

  Shape shape;
  Options options;
  Array q, k, v, out, grad_out, dq, dk, dv;
  std::vector<double> S0, z0, S, z, grad_S, grad_z, grad_S0, grad_z0, denominator, decay, grad_decay;

 private:
  Array keys() const { return {options.type, shape.batch, shape.time, shape.heads, shape.dk, options.order}; }
  Array values() const { return {options.type, shape.batch, shape.time, shape.heads, shape.dv, options.order}; }

  std::vector<double> part(const std::vector<double>& all, size_t sequence, size_t head, size_t size) const {
    const size_t first = (sequence * shape.heads + head) * size;
    return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + size)};
  }

  // A copy as accumulators, the exact size, so that a sanitizer sees what is read or written beside it. The given doubles are rounded as well.
  template <typename T>
  static std::vector<T> lower(std::vector<double>& values) {
    std::vector<T> copy(values.begin(), values.end());
    values.assign(copy.begin(), copy.end());
    return copy;
  }

  template <typename T>
  void run_as() {
    std::vector<T> lowered_decay(decay.begin(), decay.end());
    std::vector<T> lS0 = lower<T>(S0), lz0 = lower<T>(z0), lgS = lower<T>(grad_S), lgz = lower<T>(grad_z);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    std::vector<T> lS(S.size(), nan), lz(z.size(), nan), lgS0(S.size(), nan), lgz0(z.size(), nan), lden(denominator.size(), nan), lg(shape.heads, nan);
    const std::unique_ptr<bool[]> mask(new bool[options.mask.size()]);
    std::copy(options.mask.begin(), options.mask.end(), mask.get());

    Problem problem;
    problem.type = options.type;
    problem.feature_map = options.elu ? FeatureMap::kElu1 : FeatureMap::kIdentity;
    problem.normalize = options.normalize;
    problem.time = static_cast<int64_t>(shape.time);
    problem.heads = static_cast<int64_t>(shape.heads);
    problem.key_dim = static_cast<int64_t>(shape.dk);
    problem.value_dim = static_cast<int64_t>(shape.dv);
    problem.sequences = options.sequences;
    problem.decay = decay.empty() ? nullptr : lowered_decay.data();
    if (!options.mask.empty()) {
      problem.mask = mask.get();
      problem.mask_batch = problem.time;
    }
    ForwardTensors forward;
    forward.q = q.input();
    forward.k = k.input();
    forward.v = v.input();
    forward.out = out.output();
    forward.final_S = lS.data();
    forward.final_z = lz.data();
    forward.denominator = lden.data();
    BackwardTensors backward;
    backward.q = forward.q;
    backward.k = forward.k;
    backward.v = forward.v;
    backward.out = out.input();
    backward.grad_out = grad_out.input();
    backward.denominator = lden.data();
    backward.grad_q = dq.output();
    backward.grad_k = dk.output();
    backward.grad_v = dv.output();
    backward.grad_initial_S = lgS0.data();
    backward.grad_initial_z = lgz0.data();
    backward.grad_decay = lg.data();
    if (options.states) {
      forward.initial_S = backward.initial_S = lS0.data();
      forward.initial_z = backward.initial_z = lz0.data();
      backward.grad_final_S = lgS.data();
      backward.grad_final_z = lgz.data();
    }
    const Parallel parallel = threads(options.threads);
    linear_attention_forward(problem, forward, parallel);
    linear_attention_backward(problem, backward, parallel);
    S.assign(lS.begin(), lS.end());
    z.assign(lz.begin(), lz.end());
    grad_S0.assign(lgS0.begin(), lgS0.end());
    grad_z0.assign(lgz0.begin(), lgz0.end());
    denominator.assign(lden.begin(), lden.end());
    grad_decay.assign(lg.begin(), lg.end());
  }

  std::mt19937 random_;
};

}  // namespace g2c::kernels::testing
