// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric_talk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/output.hpp"
#include "core/text.hpp"
#include "fabric/discovery/node_environment.hpp"
#include "fabric/discovery/zenoh_membership.hpp"
#include "fabric/nodes/node_core.hpp"
#include "fabric/samples/event_log.hpp"
#include "runtime/reach.hpp"
#include "session/machine.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;
using detail::NodeCore;

constexpr std::size_t kMostDialled = 16;
constexpr auto kDialFor = 1s;
constexpr auto kDialOneFor = 300ms;

std::vector<std::string> routers_of(const FabricOptions& options) {
  return options.routers.empty() ? detail::routers_of_environment() : options.routers;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string outcome_of(const DialAttempt& attempt) {
  if (attempt.error.empty()) return attempt.address + ": it answers";
  if (detail::is_refusal(attempt)) return detail::why_not({attempt});
  return attempt.address + ": " + attempt.error.substr(0, attempt.error.find('\n'));
}

/// Why a node that has announced these addresses refuses the command; empty where it accepts the
/// command, or has not said.
std::string refusal_of(NodeCore& core, const ContextId& peer, const FabricOptions& options,
                       Deadline deadline) {
  const auto addresses = core.addresses_of(peer);
  if (!addresses) return {};
  if (addresses->empty()) {
    if (options.profile == Profile::plaintext) return {};  // reachable by routers
    return "found, and not reached: it announces no address for us (NodeOptions::listen)";
  }
  const auto reached =
      detail::try_to_reach(*core.context(), peer, *addresses, {options.profile}, deadline);
  if (reached.link || reached.link.error().code != ErrorCode::permission_denied) return {};
  std::vector<DialAttempt> tried;
  tried.reserve(reached.tried.size());
  for (const detail::Tried& each : reached.tried)
    tried.push_back({each.address, each.error.message()});
  return tried.empty() ? "found, and refused because " + reached.link.error().detail
                       : detail::why_not(tried);
}

}  // namespace

bool FabricTalk::may_say(const std::string& cause) {
  return pace_.next(cause, detail::LinePace::Clock::now()).has_value();
}

void FabricTalk::say(const std::string& cause, std::string_view words) {
  if (may_say(cause)) say_now(words);
}

void FabricTalk::say_now(std::string_view words) {
  cli::say(detail::LinePace::cut(fmt::format("tendon: {}", words)));
}

void FabricTalk::tell(const FabricEvent& event) {
  if (event.kind == FabricEventKind::came) {
    return say(fmt::format("came {} {}", event.node, event.key),
               fmt::format("{} publishes on {}: {}", event.node, event.key, event.reason));
  }
  if (event.kind != FabricEventKind::unreachable && event.kind != FabricEventKind::schema_mismatch)
    return;
  if (event.key.empty()) {  // the event is about a peer as a whole
    return say(fmt::format("not told {} {}", event.node, event.reason),
               fmt::format("{}: {}", event.node, event.reason));
  }
  const std::string why = detail::why_not(event);
  say(fmt::format("not connected {} {}", event.node, why),
      fmt::format("{} of {}: {}", event.key, event.node, why));
}

std::string where_it_looked(const FabricOptions& options) {
  const auto directory = detail::runtime_directory();
  std::string routers = "no router (--router, TENDON_ROUTER)";
  if (const auto named = routers_of(options); !named.empty()) {
    routers = (named.size() == 1 ? "router " : "routers ") + joined(named, ", ");
  }
  return fmt::format("domain '{}', {}, {}", shown(detail::domain_or_default(options.domain)),
                     directory ? "runtime directory " + *directory
                               : "no runtime directory: " + directory.error().detail,
                     routers);
}

std::string what_was_tried(const FabricNode& fabric, const FabricOptions& options) {
  std::vector<std::string> tried;
  for (const DialAttempt& attempt : NodeCore::of(fabric.node)->tried_peers())
    tried.push_back(outcome_of(attempt));
  if (!options.is_static() && options.peers.empty()) {
    const auto routers = routers_of(options);
    if (routers.empty()) {
      if (const auto place = detail::star_path(fabric.node.domain()))
        tried.push_back(*place + ", where nodes of this host and user meet: it answers");
    }
    for (const std::string& router : routers) tried.push_back("router " + router);
  }
  if (!options.listen.empty()) tried.push_back("nodes that dial " + fabric.node.address());
  return joined(tried, "; ");
}

void say_nobody_found(const FabricNode& fabric, const FabricOptions& options) {
  FabricTalk::say_now("nobody was found: " + where_it_looked(options));
  FabricTalk::say_now("tried: " + what_was_tried(fabric, options));
}

void say_who_refuses(const FabricNode& fabric, const FabricOptions& options, FabricTalk& talk) {
  const auto& core = NodeCore::of(fabric.node);
  const Deadline all = kDialFor;
  std::size_t dialled = 0;
  for (const ContextId& peer : core->contexts()) {
    if (peer == core->context()->id()) continue;
    if (++dialled > kMostDialled || all.has_passed()) return;
    const std::string why = refusal_of(*core, peer, options, earlier(all, Deadline(kDialOneFor)));
    const std::string name = core->name_of_peer(peer).text;
    if (!why.empty()) talk.say(name + why, fmt::format("{}: {}", name, why));
  }
}

}  // namespace tendon::cli
