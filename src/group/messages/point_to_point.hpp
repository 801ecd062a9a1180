// SPDX-License-Identifier: Apache-2.0
// Messages between members, and operations made of them and of collectives.
#pragma once

#include <memory>
#include <span>
#include <tendon/group/group.hpp>
#include <vector>

#include "group/epochs/group_core.hpp"

namespace tendon::v0::detail {

[[nodiscard]] Result<void> send(GroupCore& core, const Tensors& tensors, To to, Deadline deadline);
[[nodiscard]] Completion<void> send_async(const std::shared_ptr<GroupCore>& core,
                                          const Tensors& tensors, To to);
[[nodiscard]] Result<Received> recv(GroupCore& core, const Tensors& tensors, From from,
                                    Deadline deadline);
[[nodiscard]] Completion<Received> recv_async(const std::shared_ptr<GroupCore>& core,
                                              const Tensors& tensors, From from);
[[nodiscard]] Result<void> init_remote(GroupCore& core, const TensorDict& dict, To to,
                                       Deadline deadline);
[[nodiscard]] Result<TensorDict> from_remote_init(GroupCore& core, From from, Deadline deadline,
                                                  Received* received);
[[nodiscard]] Result<void> give_back(GroupCore& core, const Tensors& tensors,
                                     const Received& received);
[[nodiscard]] Result<void> give_back_init(GroupCore& core, const TensorDict& dict,
                                          const Received& received);
[[nodiscard]] Result<TensorDict> broadcast_init(Group& group, GroupCore& core,
                                                const TensorDict& dict, GroupRank root,
                                                Deadline deadline);
/// The ranks of this member's new group, if all lists fit together.
[[nodiscard]] Result<std::vector<GroupRank>> agree_on_split(Group& group, GroupCore& core,
                                                            std::span<const GlobalRank> members,
                                                            Deadline deadline);

}  // namespace tendon::v0::detail
