// G2C_DISPATCH(function) is `function` as compiled for the level in use. Only inside HWY_ONCE of a file that foreach_target.h includes.
#pragma once

#include "kernels/cpu_level.h"

#if HWY_TARGETS & HWY_AVX3
#define G2C_IF_AVX512(function) level == CpuLevel::kAvx512 ? &N_AVX3::function:
#else
#define G2C_IF_AVX512(function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define G2C_IF_AVX2(function) level == CpuLevel::kAvx2 ? &N_AVX2::function:
#else
#define G2C_IF_AVX2(function)
#endif
// The remaining level is the baseline that the whole build is compiled for: portable, or NEON on 64-bit Arm.
#define G2C_DISPATCH(function) \
  ([](CpuLevel level) { \
    (void)level; \
    return G2C_IF_AVX512(function) G2C_IF_AVX2(function) &HWY_STATIC_DISPATCH(function); \
  }(cpu_level()))
