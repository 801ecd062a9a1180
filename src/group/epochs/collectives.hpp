// SPDX-License-Identifier: Apache-2.0
// Turns a call into the operation that performs it: the algorithm and its data.
#pragma once

#include <memory>
#include <optional>
#include <tendon/core/result.hpp>
#include <tendon/group/reduce_op.hpp>
#include <tendon/group/tensors.hpp>
#include <vector>

#include "group/epochs/group_core.hpp"
#include "group/epochs/operation.hpp"
#include "group/operands/flat.hpp"

namespace tendon::v0::detail {

/// A collective as it was called.
struct Call {
  CollectiveOp op = CollectiveOp::barrier;
  std::optional<ReduceOp> reduce = {};
  GroupRank root = {};
  const Tensors* input = nullptr;   ///< for those with input and output; blocks where Group says so
  const Tensors* output = nullptr;  ///< the changed tensors; all tensors of collectives in place
};

/// Makes the operation of a call. Errors are those of the arguments; nothing was sent.
[[nodiscard]] Result<std::shared_ptr<Operation>> make_operation(GroupCore& core, Epoch& epoch,
                                                                std::uint64_t sequence,
                                                                const Call& call, Hold hold);

}  // namespace tendon::v0::detail
