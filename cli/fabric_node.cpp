// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric_node.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "cli/fabric_talk.hpp"
#include "core/text.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kWhere = "cli.fabric";
constexpr auto kLook = 20ms;

Error hinted(Error error, const FabricOptions& options) {
  if (error.code == ErrorCode::unreachable || error.code == ErrorCode::timeout)
    error.detail += "; " + where_it_looked(options);
  if (error.code == ErrorCode::not_supported) {
    error.detail =
        "this build has no Zenoh: name a node of the fabric with --peer HOST:PORT, or let nodes "
        "find this command with --listen HOST:PORT";
  }
  return error;
}

}  // namespace

Result<FabricNode> join_fabric(const FabricOptions& options, std::string_view verb) {
  const std::string name = fmt::format("tendon {} {}", verb, getpid());
  TENDON_TRY(context, Context::create({.name = name, .transport = options.transport}));
  NodeOptions joining{.domain = options.domain,
                      .name = name,
                      .routers = options.routers,
                      .discovery = options.discovery,
                      .listen = options.listen,
                      .routed = options.routed,
                      .security = {options.profile}};
  if (options.is_static() || !options.peers.empty()) joining.peers = options.peers;
  auto joined = Node::join(context, std::move(joining), options.patience());
  if (!joined) return hinted(std::move(joined).error(), options);
  Node node = *std::move(joined);
  if (!node.address().empty()) say(fmt::format("tendon: listening on {}", node.address()));
  return FabricNode{std::move(context), std::move(node)};
}

Result<void> wait_for_picture(FabricNode& fabric, const FabricOptions& options,
                              const Interrupt& interrupt) {
  const Deadline deadline = options.patience();
  // Nodes are found by their addresses, and the others need not exist yet.
  while (options.is_static() && fabric.node.nodes().size() < 2) {
    if (interrupt.requested()) return interrupt.error(kWhere);
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, kWhere,
                   fmt::format("no node of domain '{}' was found within {} s; tried: {}; {}",
                               shown(fabric.node.domain()), options.timeout_s,
                               what_was_tried(fabric, options), where_it_looked(options))};
    }
    std::this_thread::sleep_for(kLook);
  }
  return fabric.node.survey(deadline);
}

int run_until_signal(Format format, const std::function<Result<void>(Interrupt&)>& verb) {
  Interrupt interrupt;
  auto done = interrupt.start();
  if (done) done = verb(interrupt);
  if (done) return 0;
  const int code = report(done.error(), format);
  return interrupt.requested() ? interrupt.exit_code() : code;
}

std::string shown(std::string_view name) { return detail::cleaned(name); }

}  // namespace tendon::cli
