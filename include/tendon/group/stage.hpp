// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/group.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon {
inline namespace v0 {

/// Sends a tensor that all members of a tensor-parallel group have alike to the group of the next
/// pipeline stage. Each member sends only its share to its counterpart, and the receivers pass the
/// shares on to each other. A byte thus travels once between the stages, not once for each member.
/// Shares are cut in chunks, and chunk k is passed on while chunk k+1 is on its way. (The scheme of
/// pipeline parallelism with scatter and gather: D. Narayanan et al., "Efficient large-scale
/// language model training on GPU clusters", 2021.)
///
/// If both stages are on one host there is no link to spare, and each member sends all of it.
///
/// `stages` is the group in which the counterpart has the rank `peer`. `tensor_group` is this
/// member's own stage; it has as many members as the other, in the same order. Any dtype, any size,
/// any strides; nothing is padded. Both sides state dtype and shape first: `mismatch` names them
/// when they differ.
///
/// All members of both stages call it, those of a stage in the same order. They may mix the forms
/// that wait with the `_async` ones. None of them is a collective: other operations of both groups
/// may run meanwhile, in any order.
///
/// Blocks until the deadline: the sender until its share has left, the receiver until `tensor` is
/// whole and has been passed on.
[[nodiscard]] TENDON_API Result<void> send_to_stage(Group& stages, const Group& tensor_group,
                                                    const Tensor& tensor, GroupRank peer,
                                                    Deadline deadline);
[[nodiscard]] TENDON_API Result<void> recv_from_stage(Group& stages, Group& tensor_group,
                                                      const Tensor& tensor, GroupRank peer,
                                                      Deadline deadline);

/// Starts it without a wait: the stage computes microbatch k+1 while k travels. The Context makes
/// the progress, so the program's thread waits only when it needs the tensor, and must not touch it
/// before. Any number may be under way, to and from one peer too; they arrive in the order of the
/// calls.
///
/// Dropping the Completion lets it continue. cancel() and expire() of a send withdraw the part that
/// has not left. For a receive they end the epoch of `tensor_group`, as every error of a receive
/// does. The others of the stage would wait for chunks that this member does not pass on.
[[nodiscard]] TENDON_API Completion<void> send_to_stage_async(Group& stages,
                                                              const Group& tensor_group,
                                                              const Tensor& tensor, GroupRank peer);
[[nodiscard]] TENDON_API Completion<void> recv_from_stage_async(Group& stages, Group& tensor_group,
                                                                const Tensor& tensor,
                                                                GroupRank peer);

}  // namespace v0
}  // namespace tendon
