// SPDX-License-Identifier: Apache-2.0
// The messages of the fabric's verbs on stderr: nodes that refuse, and where no node was found.
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/fabric/fabric_event.hpp>

#include "cli/fabric_node.hpp"
#include "cli/verbs.hpp"
#include "observe/line_pace.hpp"

namespace tendon::cli {

/// Writes lines to stderr, one a cause and minute, each of at most LinePace::kMostLineBytes.
///
/// Threads: thread-safe: a thread of the node delivers the events.
class FabricTalk {
 public:
  /// Whether a line of this cause may be said. For lines that take time to make.
  [[nodiscard]] bool may_say(const std::string& cause);
  /// Says "tendon: " and the words, if the cause may be said.
  void say(const std::string& cause, std::string_view words);
  /// Says the words without a limit.
  static void say_now(std::string_view words);
  /// Reports publishers that were added, and publishers that were found but are not connected.
  void tell(const FabricEvent& event);

 private:
  detail::LinePace pace_;
};

/// The places that were searched: "domain 'brain', runtime directory /tmp/tendon-1000, no router
/// (--router, TENDON_ROUTER)".
[[nodiscard]] std::string where_it_looked(const FabricOptions& options);
/// Each address, router or meeting place, and its outcome: "10.0.0.7:7450: ...; ...".
[[nodiscard]] std::string what_was_tried(const FabricNode& fabric, const FabricOptions& options);
/// Says that no node was found, where the command searched, and what it tried.
void say_nobody_found(const FabricNode& fabric, const FabricOptions& options);
/// Names each node that was found but refuses the command, or announces no address for it, and says
/// why. Dials the first kMostDialled nodes, within kDialFor together.
void say_who_refuses(const FabricNode& fabric, const FabricOptions& options, FabricTalk& talk);

}  // namespace tendon::cli
