// SPDX-License-Identifier: Apache-2.0
// The functions of the files that are compiled once per instruction set; reduce() calls them.
#pragma once

#include <cstddef>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/group/reduce_op.hpp>
#include <tendon/tensor/dtype.hpp>

#include "core/instruction_sets.hpp"

namespace tendon::v0::detail {

/// The arguments of reduce(), checked.
struct Reduction {
  ReduceKind kind;
  double factor;
  MutableBytes out;
  std::span<const std::byte* const> inputs;
};

/// Integers and bool.
void reduce_integers(const Reduction& reduction, DType dtype);
/// f32 and f64, and complex numbers of them.
void reduce_floats(const Reduction& reduction, DType dtype);
/// Floats of 16 and 8 bits, and c32.
void reduce_small_floats(const Reduction& reduction, DType dtype);

}  // namespace tendon::v0::detail
