// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/call.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <vector>

#include "fabric/calls/call_channel.hpp"
#include "fabric/calls/open_call.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/ports/node_port.hpp"
#include "fabric/topics/feed.hpp"

namespace tendon::v0::detail {

/// The calls of one node. Each has a *part* for each responder that it asks (CallPart).
///
/// The Dialler makes a channel when a responder is first asked; it stays for later calls. No
/// request is sent twice to a responder: a lost one fails.
///
/// Owns:    channels, and calls while a thread waits for them.
/// Threads: thread-safe. Its lock is taken after a link's receive lock and before that of the node;
///          no channel is called under it. Its last share must not be dropped under a receive lock,
///          where a Context's fabric would end with it: no channel has one when close() returns.
/// Errors:  as Node::call().
/// Blocks:  call() until the deadline; close() as Dialler::drop_all().
/// Cost:    for each call: one copy of its tensors, a message for each responder.
class Caller final : public CallChannel::Side, public std::enable_shared_from_this<Caller> {
 public:
  Caller(std::shared_ptr<Entities> entities, std::shared_ptr<Dialler> dialler);

  /// A call's request, valid while the call lasts.
  struct Question {
    const KeyExpression& key;
    const TensorDict& request;
    const std::stop_token& stop;
    Deadline deadline;
  };
  [[nodiscard]] Result<Reply> call(const std::shared_ptr<NodePort>& node, const Question& question);
  [[nodiscard]] Result<CallAllReplies> call_all(const std::shared_ptr<NodePort>& node,
                                                const Question& question);
  [[nodiscard]] CallStats stats() const;
  /// Ends its calls with pipe_closed.
  void close();

  // CallChannel::Side
  void on_received(CallChannel& channel, CallChannel::Received&& received) override;
  void on_cancelled(CallChannel&, std::uint64_t) override {}
  void on_unsent(CallChannel& channel, const CallWord& word, const Error& why) override;
  void on_over(CallChannel& channel, const Error& why) override;

 private:
  using ResponderId = PublisherId;
  using Part = CallPart;
  /// It outlives its announcement: a withdrawn token of discovery ends nothing.
  struct Connection {
    EntityAnnouncement responder;
    std::string node;
    std::shared_ptr<CallChannel> channel;
  };
  enum class Until : std::uint8_t { first_answer, all_answers };
  using Call = std::shared_ptr<OpenCall>;
  class Finisher;

  [[nodiscard]] Result<void> usable(const std::stop_token& stop) const;
  [[nodiscard]] Result<CallAllReplies> ask(const std::shared_ptr<NodePort>& node,
                                           const Question& question, Until until);
  [[nodiscard]] Result<void> wait_for_responder(const NodePort& node, const Question& question);
  /// The announced responders, and the connected ones.
  [[nodiscard]] std::vector<EntityAnnouncement> responders_of(const NodePort& node,
                                                              const KeyExpression& key) const;
  [[nodiscard]] Result<Call> open(const Question& question);
  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept {
    return entities_->context();
  }
  [[nodiscard]] static Error nobody(const NodePort& node, const Question& question);
  /// Asks new responders, and forgets those that were withdrawn before they were reached.
  void ask_responders(const std::shared_ptr<NodePort>& node, OpenCall& call,
                      const std::vector<EntityAnnouncement>& responders);
  /// False: the deadline has passed.
  [[nodiscard]] bool wait_for_more(const NodePort& node, const Question& question, OpenCall& call,
                                   std::uint64_t version);
  void take_arrived(const NodePort& node, OpenCall& call, CallAllReplies& replies);
  [[nodiscard]] static std::string name_of(const NodePort& node, const Part& part);
  [[nodiscard]] bool is_settled(const OpenCall& call) const;
  [[nodiscard]] std::vector<Unanswered> unanswered(const NodePort& node,
                                                   const OpenCall& call) const;
  void finish(OpenCall& call);

  void dial(const std::shared_ptr<NodePort>& node, const EntityAnnouncement& responder);
  [[nodiscard]] Dialler::Outcome connect(const NodePort& node, const EntityAnnouncement& responder,
                                         const Dialler::Dial& dial);
  [[nodiscard]] Result<std::shared_ptr<CallChannel>> open_channel(
      const EntityAnnouncement& responder, const std::shared_ptr<Link>& link);
  /// True if a call waits for a channel to it.
  [[nodiscard]] bool is_wanted(const ResponderId& responder) const TENDON_REQUIRES(mutex_);
  void note_unreached(const ResponderId& responder, const Error& why);
  /// Sends the calls that wait for the channel of `responder`.
  void use(const Connection& connection);
  void send(const std::shared_ptr<CallChannel>& channel, const OpenCall& call);
  void forget(const CallChannel& channel) TENDON_EXCLUDES(mutex_);
  /// Ends the parts that were asked on this channel: they get no answer.
  void fail_parts(const CallChannel& channel, const Error& why) TENDON_EXCLUDES(mutex_);

  const std::shared_ptr<Entities> entities_;
  const std::shared_ptr<Dialler> dialler_;
  const std::string prefix_;  // of its targets
  mutable Mutex mutex_;
  std::map<std::uint64_t, Call> calls_ TENDON_GUARDED_BY(mutex_);
  std::map<ResponderId, Connection> connections_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<CallChannel>> leaving_ TENDON_GUARDED_BY(mutex_);  // over, still
                                                                                 // attached
  std::uint64_t last_id_ TENDON_GUARDED_BY(mutex_) = 0;
  CallStats stats_ TENDON_GUARDED_BY(mutex_);
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
