#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/cpu_level.h"
#include "kernels/linear_attention.h"
#include "reference.h"

// Arrays, calls and comparisons for the kernel tests.
namespace g2c::kernels::testing {

// The values one after the other, as text.
template <typename... Values>
std::string text(const Values&... values) {
  std::ostringstream stream;
  (stream << ... << values);
  return stream.str();
}

// bfloat16 and float16 by the book, value by value.
inline double half_to_double(uint16_t bits, ElementType type) {
  if (type == ElementType::kBFloat16) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

// The nearest one, ties to even, in exact arithmetic.
inline uint16_t nearest_half(double x, ElementType type) {
  const int mantissa_bits = type == ElementType::kBFloat16 ? 7 : 10;
  const int smallest = type == ElementType::kBFloat16 ? -126 : -14;
  const long infinity = type == ElementType::kBFloat16 ? 0x7f80 : 0x7c00;
  const int exponent = x == 0 ? smallest : std::max(std::ilogb(x), smallest);
  const long mantissa = std::lrint(std::ldexp(std::abs(x), mantissa_bits - exponent));
  // A subnormal number has the smallest exponent and no leading one; a mantissa that was rounded up carries into the exponent.
  const long bits = std::isinf(x) ? infinity : ((static_cast<long>(exponent) - smallest) << mantissa_bits) + mantissa;
  return static_cast<uint16_t>(std::min(bits, infinity) | (std::signbit(x) ? 0x8000 : 0));
}

// Values (batch, time, head, dim) somewhere inside a buffer that is NaN everywhere else: reading or writing beside them shows.
class Array {
 public:
  enum class Order { kBTHD, kBHTD, kDimOutermost };

  Array(ElementType type, size_t batch, size_t time, size_t heads, size_t dim, Order order = Order::kBTHD)
      : type_(type), batch_(batch), time_(time), heads_(heads), dim_(dim) {
    const auto b = static_cast<int64_t>(batch), t = static_cast<int64_t>(time), h = static_cast<int64_t>(heads), d = static_cast<int64_t>(dim) + kGap;
    switch (order) {
      case Order::kBTHD:
        view_ = {nullptr, t * h * d, h * d, d, 1};
        break;
      case Order::kBHTD:
        view_ = {nullptr, h * t * d, d, t * d, 1};
        break;
      case Order::kDimOutermost:
        view_ = {nullptr, t * h, h, 1, b * t * h};
        break;
    }
    bytes_.resize((static_cast<size_t>(b * t * h * d) + 2 * kGap) * width());
    for (size_t i = 0; i * width() < bytes_.size(); ++i) {
      write(i, std::numeric_limits<double>::quiet_NaN());
    }
    pristine_ = bytes_;
  }

  void set(size_t b, size_t t, size_t h, size_t d, double x) { write(at(b, t, h, d), x); }
  double get(size_t b, size_t t, size_t h, size_t d) const { return read(at(b, t, h, d)); }

  template <typename Random>
  void fill(Random&& random) {
    for_each([&](size_t b, size_t t, size_t h, size_t d) { set(b, t, h, d, random()); });
  }

  std::vector<double> head(size_t b, size_t first, size_t end, size_t h) const {
    std::vector<double> values;
    for (size_t t = first; t < end; ++t) {
      for (size_t d = 0; d < dim_; ++d) {
        values.push_back(get(b, t, h, d));
      }
    }
    return values;
  }

  Input input() const { return {bytes_.data() + kGap * width(), view_.batch, view_.time, view_.head, view_.dim}; }
  Output output() { return {bytes_.data() + kGap * width(), view_.batch, view_.time, view_.head, view_.dim}; }

  // Whether nothing but the array's own elements has changed.
  bool surroundings_untouched() const {
    std::vector<char> now = bytes_;
    for_each([&](size_t b, size_t t, size_t h, size_t d) {
      std::copy_n(pristine_.data() + at(b, t, h, d) * width(), width(), now.data() + at(b, t, h, d) * width());
    });
    return now == pristine_;
  }

 private:
  static constexpr int64_t kGap = 5;

  size_t width() const { return type_ == ElementType::kFloat64 ? 8 : type_ == ElementType::kFloat32 ? 4 : 2; }
  size_t at(size_t b, size_t t, size_t h, size_t d) const {
    return static_cast<size_t>(kGap + static_cast<int64_t>(b) * view_.batch + static_cast<int64_t>(t) * view_.time + static_cast<int64_t>(h) * view_.head +
                               static_cast<int64_t>(d) * view_.dim);
  }
  template <typename Body>
  void for_each(const Body& body) const {
    for (size_t b = 0; b < batch_; ++b) {
      for (size_t t = 0; t < time_; ++t) {
        for (size_t h = 0; h < heads_; ++h) {
          for (size_t d = 0; d < dim_; ++d) {
            body(b, t, h, d);
          }
        }
      }
    }
  }
  void write(size_t i, double x) {
    if (type_ == ElementType::kFloat64) {
      put(i, x);
    } else if (type_ == ElementType::kFloat32) {
      put(i, static_cast<float>(x));
    } else if (std::isnan(x)) {
      put(i, static_cast<uint16_t>(type_ == ElementType::kBFloat16 ? 0x7fc1 : 0x7e01));
    } else {
      put(i, nearest_half(x, type_));
    }
  }
  double read(size_t i) const {
    if (type_ == ElementType::kFloat64) {
      return take<double>(i);
    }
    return type_ == ElementType::kFloat32 ? static_cast<double>(take<float>(i)) : half_to_double(take<uint16_t>(i), type_);
  }
  template <typename E>
  void put(size_t i, E x) {
    std::copy_n(reinterpret_cast<const char*>(&x), sizeof(E), bytes_.data() + i * sizeof(E));
  }
  template <typename E>
  E take(size_t i) const {
    E x;
    std::copy_n(bytes_.data() + i * sizeof(E), sizeof(E), reinterpret_cast<char*>(&x));
    return x;
  }

  ElementType type_;
  size_t batch_, time_, heads_, dim_;
  Input view_;
  std::vector<char> bytes_;
  std::vector<char> pristine_;
};

// max |a - b| / max |b|, where b is the reference. NaN if a NaN or infinity is on one side only.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double off = 0;
  double largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      if (std::isfinite(a[i]) != std::isfinite(b[i])) {
        return std::numeric_limits<double>::quiet_NaN();
      }
      continue;
    }
    off = std::max(off, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return off == 0 ? 0 : off / largest;
}

inline Parallel threads(int count) {
  Parallel parallel;
  parallel.threads = count;
  parallel.run = [count](int64_t n, const Parallel::Body& body) {
    std::vector<std::thread> pool;
    const int64_t share = (n + count - 1) / count;
    for (int64_t begin = 0; begin < n; begin += share) {
      pool.emplace_back([&body, begin, end = std::min(n, begin + share)] { body(begin, end); });
    }
    for (std::thread& thread : pool) {
      thread.join();
    }
  };
  return parallel;
}

// A test that runs once for each level that this machine has.
class AtEachLevel : public ::testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override { force_cpu_level(GetParam()); }
  void TearDown() override { force_cpu_level(std::nullopt); }
};

inline std::string level_name(const ::testing::TestParamInfo<CpuLevel>& info) { return std::string(cpu_level_name(info.param)); }

#define G2C_AT_EACH_LEVEL(suite) INSTANTIATE_TEST_SUITE_P(Level, suite, ::testing::ValuesIn(supported_cpu_levels()), level_name)

}  // namespace g2c::kernels::testing
