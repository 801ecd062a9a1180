// SPDX-License-Identifier: Apache-2.0
// The instruction sets for which loops are compiled. Highway reads this name. Every file that is
// compiled once per instruction set includes this before Highway, so that all have the same ones.
#pragma once

// The disabled instruction sets, for each costs time to compile: SSSE3 would serve processors
// before 2008, and SVE has not been tried. SSE4, AVX2 and AVX3 (AVX-512), or NEON, and the portable
// one remain.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
