// SPDX-License-Identifier: Apache-2.0
// What reduce() hands to the files that are compiled once per instruction set.
#pragma once

#include <cstddef>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/group/reduce_op.hpp>
#include <tendon/tensor/dtype.hpp>

// Instruction sets without a version of their own, for each costs time to compile: SSSE3 would
// serve processors before 2008, and SVE has not been tried. What remains is SSE4, AVX2 and AVX3
// (AVX-512), or NEON, and the portable one.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

namespace tendon::inline v0::detail {

/// The arguments of reduce(), checked.
struct Reduction {
  ReduceKind kind;
  double factor;
  MutableBytes out;
  std::span<const std::byte* const> inputs;
};

/// bool too.
void reduce_integers(const Reduction& reduction, DType dtype);
/// f32 and f64, and complex numbers of them.
void reduce_floats(const Reduction& reduction, DType dtype);
/// Those of 16 and 8 bits, and c32.
void reduce_small_floats(const Reduction& reduction, DType dtype);

}  // namespace tendon::inline v0::detail
