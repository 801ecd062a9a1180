// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric_node.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "core/text.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kWhere = "cli.fabric";
constexpr auto kLook = 20ms;
/// So long nothing changes once all was said that was on its way.
constexpr auto kQuiet = 300ms;

struct Picture {
  std::vector<std::string> nodes;
  std::vector<EntityInfo> publishers;
  std::vector<EntityInfo> subscribers;

  friend bool operator==(const Picture&, const Picture&) = default;
};

Result<Node> hinted(Error error) {
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
                      .listen = options.listen,
                      .profile = options.profile};
  if (options.is_static() || !options.peers.empty()) joining.peers = options.peers;
  TENDON_TRY(node, Node::join(context, std::move(joining), options.patience()).or_else(hinted));
  if (!node.address().empty()) say(fmt::format("tendon: listening on {}", node.address()));
  return FabricNode{std::move(context), std::move(node)};
}

Result<void> wait_for_picture(FabricNode& fabric, const FabricOptions& options,
                              const Interrupt& interrupt) {
  const Deadline deadline = options.patience();
  if (!options.is_static()) return fabric.node.survey(deadline);
  const auto look = [&] {
    return Picture{fabric.node.nodes(), fabric.node.publishers(), fabric.node.subscribers()};
  };
  Picture seen = look();
  auto since = std::chrono::steady_clock::now();
  while (!deadline.has_passed()) {
    if (interrupt.requested()) return interrupt.error(kWhere);
    std::this_thread::sleep_for(kLook);
    Picture now = look();
    if (now != seen) {
      seen = std::move(now);
      since = std::chrono::steady_clock::now();
    } else if (seen.nodes.size() > 1 && std::chrono::steady_clock::now() - since > kQuiet) {
      return {};
    }
  }
  if (seen.nodes.size() > 1) return {};
  return Error{ErrorCode::timeout, kWhere,
               fmt::format("no node of domain '{}' was found within {} s", shown(options.domain),
                           options.timeout_s)};
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
