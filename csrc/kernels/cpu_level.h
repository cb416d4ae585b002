#pragma once

#include <optional>
#include <string_view>
#include <vector>

// The instruction set that the kernels use, chosen once at run time: the best one that this CPU has, or the one that the environment
// variable G2C_CPU_LEVEL names.
namespace g2c::kernels {

enum class CpuLevel { kPortable, kAvx2, kAvx512, kNeon };

// "portable", "avx2", "avx512", "neon".
std::string_view cpu_level_name(CpuLevel level);

// The levels that are built in and that this CPU can run, best first.
const std::vector<CpuLevel>& supported_cpu_levels();

// The level in use. std::invalid_argument if G2C_CPU_LEVEL names an unknown level, or one that this build or CPU lacks.
CpuLevel cpu_level();

// For tests: use `level` from now on, in all threads; nullopt goes back to the choice described above. The same exception as cpu_level.
void force_cpu_level(std::optional<CpuLevel> level);

// The level called `name`, checked as described at cpu_level.
CpuLevel parse_cpu_level(std::string_view name);

}  // namespace g2c::kernels
