// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/call.hpp>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/fabric/node_options.hpp>
#include <tendon/fabric/peer_stats.hpp>
#include <tendon/fabric/publisher.hpp>
#include <tendon/fabric/responder.hpp>
#include <tendon/fabric/subscriber.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

namespace detail {
class NodeCore;
}

/// A member of a fabric: a name in a domain, under which a program publishes, subscribes, calls and
/// responds.
///
/// Example:
///   Node node = Node::join(context, {.name = "camera"}, 5s).value();
///   Publisher frames = Publisher::declare(node, "vision/frames").value();
///   frames.publish(batch).value();
///   Result<Reply> plan = node.call("arm/plan", batch, 2s);
///   if (plan) std::cout << plan->node << ": " << plan->tensors << '\n';
///   for (const std::string& name : node.nodes()) std::cout << name << '\n';
///
/// Owns:    its announcements, and channels to responders that it called. Publishers, subscribers
///          and responders share its state, so they may be destroyed in any order. Any number of
///          nodes may share a Context, its links and its memory.
/// Threads: safe everywhere.
/// Errors:  invalid_argument, address_in_use, permission_denied (a routable address without
///          plaintext), unreachable (no router: each with its reason), not_supported (Zenoh, in a
///          build without it).
/// Blocks:  join() until a router is connected (DiscoveryNeed), and until each of `peers` was
///          dialled once or the deadline: one that is not there yet is no error, and is dialled
///          again. call() and call_all() until the deadline. close() and the destructor while a
///          dial is given up, a second at most; with Zenoh two more, and two again while routers
///          are tried in the background.
/// Cost:    a thread that dials, idle while there is nothing to connect to; 33 at most. A session
///          of Zenoh is about 10 MB and its threads. Both are for all nodes of a Context; one that
///          finds others by itself has two sessions. The first subscriber that hears plain Zenoh
///          peers opens one more.
///
/// A token of discovery is a hint: its coming starts connecting, its loss ends nothing. What is
/// alive is decided by links alone.
class TENDON_API Node {
 public:
  [[nodiscard]] static Result<Node> join(Context& context, NodeOptions options, Deadline deadline);
  Node(Node&&) noexcept;
  Node& operator=(Node&&) noexcept;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  [[nodiscard]] const std::string& domain() const& noexcept;
  const std::string& domain() const&& = delete;
  [[nodiscard]] const std::string& name() const& noexcept;
  const std::string& name() const&& = delete;
  /// Where it listens by NodeOptions::listen, with the port that was chosen; empty: nowhere.
  [[nodiscard]] const std::string& address() const& noexcept;
  const std::string& address() const&& = delete;
  /// From now on discovery tells this node of its whole domain; returns when all that is there was
  /// told. Before, it tells of what the node needs: nodes that have a publisher for a subscriber of
  /// it. Errors: timeout.
  [[nodiscard]] Result<void> survey(Deadline deadline);
  /// Names of the nodes of its domain that discovery tells of, its own among them, sorted.
  [[nodiscard]] std::vector<std::string> nodes() const;
  /// What discovery tells of publishers and subscribers of its domain, sorted by key and node.
  [[nodiscard]] std::vector<EntityInfo> publishers() const;
  [[nodiscard]] std::vector<EntityInfo> subscribers() const;
  /// What is known of a node by the links to it; of several of that name, of the one that started
  /// last. Errors: unreachable when no such node was found, or when there is no link to it.
  [[nodiscard]] Result<PeerStats> peer_stats(const std::string& name) const;
  [[nodiscard]] std::vector<EntityInfo> responders() const;
  /// Does somebody subscribe to one of these keys by Zenoh: a plain peer, or a subscriber of Tendon
  /// that listens to plain ones? Errors: not_supported (a node without Zenoh), timeout.
  [[nodiscard]] Result<bool> has_plain_subscribers(std::string_view keys, Deadline deadline);

  /// Asks all responders of `key`, waiting for the first to be announced, takes the first answer,
  /// and cancels the other requests. An error of one responder is that of the call when none
  /// answers, and names its node. No request is sent twice to a responder.
  /// Errors: `unreachable` without a responder, `timeout`, `peer_lost`, `server_busy`,
  /// `handler_failed`, and what else a handler returns; resource_exhausted when `publish_bytes` is
  /// short; pipe_closed after close().
  [[nodiscard]] Result<Reply> call(std::string_view key, const TensorDict& request,
                                   Deadline deadline);
  /// The same, which is given up as `cancelled` when `stop` is requested.
  [[nodiscard]] Result<Reply> call(std::string_view key, const TensorDict& request,
                                   const std::stop_token& stop, Deadline deadline);
  /// Until each responder that is announced meanwhile has answered or failed, or the deadline.
  /// Errors: `unreachable` without a responder; what becomes of each is in the result.
  [[nodiscard]] Result<CallAllReplies> call_all(std::string_view key, const TensorDict& request,
                                                Deadline deadline);
  [[nodiscard]] Result<CallAllReplies> call_all(std::string_view key, const TensorDict& request,
                                                const std::stop_token& stop, Deadline deadline);
  [[nodiscard]] CallStats call_stats() const;
  /// `callback` gets the events from now on, where those of Context::on_member come, under no lock.
  /// While 4096 events wait for it, further ones are only logged; gaps also come with samples.
  void on_event(std::function<void(const FabricEvent&)> callback);
  /// Withdraws its announcements and looks for nobody any more. Calls end. Publishers, subscribers
  /// and responders keep the channels that they have. Idempotent.
  void close();

 private:
  friend class detail::NodeCore;
  explicit Node(std::shared_ptr<detail::NodeCore> core);
  std::shared_ptr<detail::NodeCore> core_;
};

}  // namespace v0
}  // namespace tendon
