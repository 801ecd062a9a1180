// SPDX-License-Identifier: Apache-2.0
// The node with which the command takes part in a fabric.
#pragma once

#include <functional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>

#include "cli/interrupt.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {

/// Members are destroyed in the order that they need: the node before its Context.
struct FabricNode {
  Context context;
  Node node;
};

/// Joins under a name that no other run of the command has. Errors: as Node::join.
[[nodiscard]] Result<FabricNode> join_fabric(const FabricOptions& options, std::string_view verb);

/// Waits until discovery has reported all that exists; with addresses alone, also until another
/// node is found. Errors: timeout; cancelled by a signal.
[[nodiscard]] Result<void> wait_for_picture(FabricNode& fabric, const FabricOptions& options,
                                            const Interrupt& interrupt);

/// Runs a verb that a signal ends, reports its error and returns its exit code.
[[nodiscard]] int run_until_signal(Format format,
                                   const std::function<Result<void>(Interrupt&)>& verb);

/// A name that an untrusted peer chose, in a form that a terminal may show.
[[nodiscard]] std::string shown(std::string_view name);

}  // namespace tendon::cli
