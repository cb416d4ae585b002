#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

// The one oracle of the kernel tests: a loop over tokens in double for one head of one sequence, with nothing chunked.
namespace g2c::kernels::testing {

struct Reference {
  size_t tokens = 0;
  size_t dk = 0;
  size_t dv = 0;
  double g = 1;
  bool elu = true;
  bool normalize = true;
  double eps = 1e-6;
  std::vector<double> q, k, v, S0, z0;   // (tokens, dk), (tokens, dk), (tokens, dv), (dk, dv), (dk)
  std::vector<double> grad_out, dS, dz;  // of out, and of the final S and z
  std::vector<bool> keep;                // per token; empty: all

  std::vector<double> out, S, z;                    // results of run()
  std::vector<double> dq, dk_, dv_, dS0, dz0;       // results of run()
  double dg = 0;

  double feature(double x) const { return !elu || x >= 0 || std::isnan(x) ? (elu ? x + 1 : x) : std::max(std::exp(x), 4.9406564584124654e-324); }
  double slope(double x) const { return elu && x < 0 ? std::exp(x) : std::isnan(x) ? x : 1; }
  bool kept(size_t t) const { return keep.empty() || keep[t]; }

  void run() {
    forward();
    backward();
  }

 private:
  std::vector<double> den;

  // Also the derivative of S and z with respect to g, carried along: with it the gradient of the decay is a plain sum, and that of q is one as well.
  void forward() {
    S = S0.empty() ? std::vector<double>(dk * dv) : S0;
    z = z0.empty() ? std::vector<double>(dk) : z0;
    std::vector<double> S_by_g(dk * dv), z_by_g(dk);
    out.assign(tokens * dv, 0);
    den.assign(tokens, 1);
    dq.assign(tokens * dk, 0);
    dg = 0;
    for (size_t t = 0; t < tokens; ++t) {
      if (!kept(t)) {
        continue;
      }
      double sum = eps;
      std::vector<double> num(dv), num_by_g(dv);
      double den_by_g = 0;
      for (size_t a = 0; a < dk; ++a) {
        const double key = feature(k[t * dk + a]);
        const double query = feature(q[t * dk + a]);
        z_by_g[a] = g * z_by_g[a] + z[a];
        z[a] = g * z[a] + key;
        sum += query * z[a];
        den_by_g += query * z_by_g[a];
        for (size_t b = 0; b < dv; ++b) {
          const size_t at = a * dv + b;
          S_by_g[at] = g * S_by_g[at] + S[at];
          S[at] = g * S[at] + key * v[t * dv + b];
          num[b] += query * S[at];
          num_by_g[b] += query * S_by_g[at];
        }
      }
      if (normalize) {
        den[t] = sum;
      }
      for (size_t b = 0; b < dv; ++b) {
        out[t * dv + b] = num[b] / den[t];
      }
      if (grad_out.empty()) {
        continue;
      }
      dg += correction(t) * den_by_g;
      for (size_t b = 0; b < dv; ++b) {
        dg += weight(t, b) * num_by_g[b];
      }
      for (size_t a = 0; a < dk; ++a) {
        double gradient = correction(t) * z[a];
        for (size_t b = 0; b < dv; ++b) {
          gradient += S[a * dv + b] * weight(t, b);
        }
        dq[t * dk + a] = gradient * slope(q[t * dk + a]);
      }
    }
    for (size_t i = 0; i < dS.size(); ++i) {
      dg += dS[i] * S_by_g[i];
    }
    for (size_t i = 0; i < dz.size(); ++i) {
      dg += dz[i] * z_by_g[i];
    }
  }

  double weight(size_t t, size_t b) const { return grad_out[t * dv + b] / den[t]; }

  // The gradient of the denominator.
  double correction(size_t t) const {
    double sum = 0;
    for (size_t b = 0; normalize && b < dv; ++b) {
      sum -= weight(t, b) * out[t * dv + b];
    }
    return sum;
  }

  void backward() {
    dk_.assign(tokens * dk, 0);
    dv_.assign(tokens * dv, 0);
    dS0 = dS.empty() ? std::vector<double>(dk * dv) : dS;
    dz0 = dz.empty() ? std::vector<double>(dk) : dz;
    for (size_t t = tokens; t-- > 0;) {
      if (!kept(t) || grad_out.empty()) {
        continue;
      }
      for (size_t a = 0; a < dk; ++a) {
        const double key = feature(k[t * dk + a]);
        const double query = feature(q[t * dk + a]);
        dz0[a] += query * correction(t);
        double gradient = dz0[a];
        for (size_t b = 0; b < dv; ++b) {
          double& R = dS0[a * dv + b];
          R += query * weight(t, b);
          gradient += R * v[t * dv + b];
          dv_[t * dv + b] += key * R;
          R *= g;
        }
        dk_[t * dk + a] = gradient * slope(k[t * dk + a]);
        dz0[a] *= g;
      }
    }
  }
};

}  // namespace g2c::kernels::testing
