// SPDX-License-Identifier: Apache-2.0
// The words of the fabric's verbs on stderr: who was found and refuses, and where nobody was found.
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/fabric/fabric_event.hpp>

#include "cli/fabric_node.hpp"
#include "cli/verbs.hpp"
#include "observe/line_pace.hpp"

namespace tendon::cli {

/// Lines on stderr, one a cause and minute, each of at most LinePace::kMostLineBytes.
///
/// Threads: thread-safe: events come on a thread of the node.
class FabricTalk {
 public:
  /// May a line of this cause be said? For lines that take time to make.
  [[nodiscard]] bool may_say(const std::string& cause);
  /// "tendon: " and the words, where the cause may be said.
  void say(const std::string& cause, std::string_view words);
  /// The words at once.
  static void say_now(std::string_view words);
  /// Tells of publishers that came, and of those that were found and are not connected.
  void tell(const FabricEvent& event);

 private:
  detail::LinePace pace_;
};

/// "domain 'brain', runtime directory /tmp/tendon-1000, no router (--router, TENDON_ROUTER)".
[[nodiscard]] std::string where_it_looked(const FabricOptions& options);
/// Each address, router or meeting place, and its outcome: "10.0.0.7:7450: ...; ...".
[[nodiscard]] std::string what_was_tried(const FabricNode& fabric, const FabricOptions& options);
/// That nobody was found, where, and what was tried.
void say_nobody_found(const FabricNode& fabric, const FabricOptions& options);
/// Names each node that was found and refuses the command, or announces no address for it, and says
/// why. The first kMostDialled nodes are dialled, within kDialFor together.
void say_who_refuses(const FabricNode& fabric, const FabricOptions& options, FabricTalk& talk);

}  // namespace tendon::cli
