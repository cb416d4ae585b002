#include "kernels/cpu_level.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/targets.h"

#include <hwy/detect_compiler_arch.h>
#include <hwy/detect_targets.h>

namespace g2c::kernels {
namespace {

constexpr CpuLevel kAllLevels[] = {CpuLevel::kAvx512, CpuLevel::kAvx2, CpuLevel::kNeon, CpuLevel::kPortable};

#if HWY_ARCH_X86
// What the compiler may emit at these levels: the lists of Highway's HWY_AVX2 and HWY_AVX3.
bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw");
}
#endif

bool is_supported(CpuLevel level) {
  switch (level) {
#if HWY_TARGETS & HWY_AVX3
    case CpuLevel::kAvx512:
      return cpu_has_avx512();
#endif
#if HWY_TARGETS & HWY_AVX2
    case CpuLevel::kAvx2:
      return cpu_has_avx2();
#endif
#if HWY_TARGETS & HWY_NEON
    case CpuLevel::kNeon:
      return true;
#endif
#if HWY_TARGETS & (HWY_SCALAR | HWY_EMU128)
    case CpuLevel::kPortable:
      return true;
#endif
    default:
      return false;
  }
}

std::string names_of(const std::vector<CpuLevel>& levels) {
  std::string names;
  for (const CpuLevel level : levels) {
    names += names.empty() ? "" : ", ";
    names += cpu_level_name(level);
  }
  return names;
}

CpuLevel choose() {
  const char* name = std::getenv("G2C_CPU_LEVEL");
  return name == nullptr || *name == '\0' ? supported_cpu_levels().front() : parse_cpu_level(name);
}

constexpr int kUndecided = -1;
std::atomic<int> current{kUndecided};

}  // namespace

std::string_view cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kNeon:
      return "neon";
    case CpuLevel::kPortable:
      return "portable";
  }
  return "unknown";
}

const std::vector<CpuLevel>& supported_cpu_levels() {
  static const std::vector<CpuLevel> levels = [] {
    std::vector<CpuLevel> found;
    std::copy_if(std::begin(kAllLevels), std::end(kAllLevels), std::back_inserter(found), is_supported);
    return found;
  }();
  return levels;
}

CpuLevel parse_cpu_level(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kAllLevels), std::end(kAllLevels), [&](CpuLevel level) { return cpu_level_name(level) == name; });
  if (found == std::end(kAllLevels) || !is_supported(*found)) {
    throw std::invalid_argument("G2C_CPU_LEVEL: got '" + std::string(name) + "', but this build on this CPU has: " + names_of(supported_cpu_levels()));
  }
  return *found;
}

CpuLevel cpu_level() {
  int level = current.load(std::memory_order_relaxed);
  if (level == kUndecided) {
    level = static_cast<int>(choose());
    current.store(level, std::memory_order_relaxed);
  }
  return static_cast<CpuLevel>(level);
}

void force_cpu_level(std::optional<CpuLevel> level) {
  current.store(level ? static_cast<int>(parse_cpu_level(cpu_level_name(*level))) : kUndecided, std::memory_order_relaxed);
}

}  // namespace g2c::kernels
