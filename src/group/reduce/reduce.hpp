// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collectives: many inputs, one output.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/reduce_op.hpp>
#include <tendon/tensor/dtype.hpp>

namespace tendon::v0::detail {

/// Checks that `op` is defined for elements of this type: the table of ReduceOp. `where` is that of
/// the error, unsupported_dtype.
Result<void> check_reduce(const ReduceOp& op, DType dtype, std::string_view where);

/// Combines: element i of `out` becomes inputs[0][i] op inputs[1][i] op ..., in this order, as
/// ReduceOp says; avg divides by the number of inputs. The bits do not depend on the processor, the
/// program's mode of arithmetic, alignment or the place of an element in `out`. A caller may
/// therefore cut the elements as it likes.
///
/// `out` is a whole number of elements, each input has as many, at any address. `out` may be one of
/// the inputs; otherwise they do not overlap. Preconditions: at least one input; check_reduce() has
/// agreed.
///
/// One pass: a block of each input is loaded, combined in registers and stored once, in vectors as
/// long as the processor has them (Highway, at run time).
void reduce(const ReduceOp& op, DType dtype, MutableBytes out,
            std::span<const std::byte* const> inputs);

}  // namespace tendon::v0::detail
