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

/// A member of a fabric: a name in a domain. Under it a program publishes, subscribes, calls and
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
///          dialled once, or the deadline. A peer that is not there yet is no error, and is dialled
///          again. call() and call_all() until the deadline. close() and the destructor while a
///          dial is cancelled, at most 1 s; with Zenoh 2 s more, and 2 s again while routers are
///          tried in the background.
/// Cost:    threads that dial, idle while there is nothing to dial; 33 at most. A session of Zenoh
///          costs about 10 MB and its threads. All nodes of a Context share both; one whose nodes
///          find others by themselves has two sessions. The first subscriber that hears plain Zenoh
///          peers opens one more.
///
/// A token of discovery is a hint: a new one starts connecting, a lost one ends nothing. Links
/// alone decide what is alive.
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
  /// The address of NodeOptions::listen, with the port that was chosen; empty: none.
  [[nodiscard]] const std::string& address() const& noexcept;
  const std::string& address() const&& = delete;
  /// Makes discovery report the whole domain to this node from now on; returns when it has reported
  /// everything that is there. Before, it reports only what the node needs: nodes with a publisher
  /// for a subscriber of this node. Errors: timeout.
  [[nodiscard]] Result<void> survey(Deadline deadline);
  /// The names of the nodes that discovery reports in its domain, with its own, sorted.
  [[nodiscard]] std::vector<std::string> nodes() const;
  /// The publishers and subscribers that discovery reports in its domain, sorted by key and node.
  [[nodiscard]] std::vector<EntityInfo> publishers() const;
  [[nodiscard]] std::vector<EntityInfo> subscribers() const;
  /// The state of a node as its links show it; if several have that name, of the one that started
  /// last. Errors: unreachable when no such node was found, or when there is no link to it.
  [[nodiscard]] Result<PeerStats> peer_stats(const std::string& name) const;
  [[nodiscard]] std::vector<EntityInfo> responders() const;
  /// True if somebody subscribes to one of these keys by Zenoh: a plain peer, or a subscriber of
  /// Tendon that listens to plain ones. Errors: not_supported (a node without Zenoh), timeout.
  [[nodiscard]] Result<bool> has_plain_subscribers(std::string_view keys, Deadline deadline);

  /// Asks all responders of `key`, after waiting for the first announcement, takes the first
  /// answer, and cancels the other requests. If none answers, the error of one responder is that of
  /// the call, and names its node. No request is sent twice to a responder.
  /// Errors: `unreachable` without a responder, `timeout`, `peer_lost`, `server_busy`,
  /// `handler_failed`, and any other that a handler returns; resource_exhausted when
  /// `publish_bytes` is short; pipe_closed after close().
  [[nodiscard]] Result<Reply> call(std::string_view key, const TensorDict& request,
                                   Deadline deadline);
  /// The same, but returns `cancelled` when `stop` is requested.
  [[nodiscard]] Result<Reply> call(std::string_view key, const TensorDict& request,
                                   const std::stop_token& stop, Deadline deadline);
  /// Asks all responders of `key` and collects their answers. Returns when each responder that was
  /// announced meanwhile has answered or failed, or at the deadline. Errors: `unreachable` without
  /// a responder; the result has the failure of each.
  [[nodiscard]] Result<CallAllReplies> call_all(std::string_view key, const TensorDict& request,
                                                Deadline deadline);
  [[nodiscard]] Result<CallAllReplies> call_all(std::string_view key, const TensorDict& request,
                                                const std::stop_token& stop, Deadline deadline);
  [[nodiscard]] CallStats call_stats() const;
  /// Hands later events to `callback`, on the threads of Context::on_member, under no lock. While
  /// 4096 events wait for it, further ones are only logged; gaps are also in samples.
  void on_event(std::function<void(const FabricEvent&)> callback);
  /// Withdraws its announcements and stops looking for others. Calls end. Publishers, subscribers
  /// and responders keep their channels. Idempotent.
  void close();

 private:
  friend class detail::NodeCore;
  explicit Node(std::shared_ptr<detail::NodeCore> core);
  std::shared_ptr<detail::NodeCore> core_;
};

}  // namespace v0
}  // namespace tendon
