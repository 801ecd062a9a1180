// SPDX-License-Identifier: Apache-2.0
// The instruction sets that loops are compiled for. Highway reads this name; every file that is
// compiled once per instruction set includes this before Highway, so that all have the same ones.
#pragma once

// Instruction sets without a version of their own, for each costs time to compile: SSSE3 would
// serve processors before 2008, and SVE has not been tried. What remains is SSE4, AVX2 and AVX3
// (AVX-512), or NEON, and the portable one.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
