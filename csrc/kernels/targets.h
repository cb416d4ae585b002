// Included before any Highway header: which instruction sets are compiled. Each costs build time, so only those that matter are: the portable
// fallback (which serves every x86-64), AVX2, AVX-512 and NEON.
#pragma once

#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3 | HWY_NEON))
// Highway's own debug checks call into its library; we use only its headers, so that nothing has to be linked or shipped.
#define HWY_IS_DEBUG_BUILD 0
