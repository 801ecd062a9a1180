// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "channel/body_reader.hpp"
#include "channel/channel.hpp"
#include "channel/fanout.hpp"
#include "channel/kept_body.hpp"
#include "fabric/ports/call_words.hpp"
#include "fabric/ports/entities.hpp"

namespace tendon::v0::detail {

/// One end of a pipe of purpose `call`. A request is *open* from the moment when its caller showed
/// it, or its responder saw it, until its one answer: kMaxOpenCalls at most on a channel.
///
/// Owns:    unsent messages; its channel, with received ones.
/// Threads: thread-safe. Its lock is taken after a link's receive lock and that of its Fanout;
///          nothing of a CallSide is called under it.
/// Errors:  a peer that breaks the rules is told, and not heard any more.
/// Blocks:  never.
/// Cost:    two locks for each message, and the cost of its link.
class CallChannel final : public ChannelEvents, public std::enable_shared_from_this<CallChannel> {
 public:
  enum class Role : std::uint8_t { caller, responder };
  /// A message that is here, and counts in the window until take() or drop().
  struct Received {
    CallWord word;
    Incoming incoming;
    std::shared_ptr<const Schema> schema;
  };
  /// Handles the events of a channel. The link's receive lock may be held: it moves things and
  /// returns.
  class Side {
   public:
    virtual ~Side() = default;
    virtual void on_received(CallChannel& channel, Received&& received) = 0;
    /// Called when the caller has cancelled this request, which may be unknown here.
    virtual void on_cancelled(CallChannel& channel, std::uint64_t id) = 0;
    /// Called when a message could not be sent and was dropped.
    virtual void on_unsent(CallChannel& channel, const CallWord& word, const Error& why) = 0;
    /// Called once: nothing arrives any more.
    virtual void on_over(CallChannel& channel, const Error& why) = 0;
  };

  [[nodiscard]] static std::shared_ptr<CallChannel> create(std::shared_ptr<Entities> entities,
                                                           const std::shared_ptr<Link>& link,
                                                           std::uint32_t pipe, Role role,
                                                           Window answers,
                                                           std::weak_ptr<Side> side);
  CallChannel(std::shared_ptr<Entities> entities, const std::shared_ptr<Link>& link,
              std::uint32_t pipe, Role role, Window answers, std::weak_ptr<Side> side);
  ~CallChannel() override;

  [[nodiscard]] Link& link() const noexcept { return channel_.link(); }
  [[nodiscard]] bool is_over() const { return !channel_.is_open(); }
  [[nodiscard]] std::shared_ptr<MessageSink> sink() {
    return Channel::sink_of(shared_from_this(), channel_);
  }
  [[nodiscard]] Mutex& receive_mutex() const noexcept
      TENDON_RETURNS_LOCK(channel_.receive_mutex()) {
    return channel_.receive_mutex();
  }

  // Sending
  /// Sends `message`, which has `word` at its end. False: the channel is over.
  bool send(std::shared_ptr<const KeptBody> message, const CallWord& word);
  /// The same without tensors.
  bool send(const CallWord& word, std::string_view text);
  /// For a caller: cancels the request. Its answer is not passed on.
  void cancel(std::uint64_t id);
  /// For a responder: true if an answer of this size may wait, beside the untaken ones.
  [[nodiscard]] bool has_room(std::uint64_t size_bytes) const;
  /// True if the peer or the kernel has everything that was sent.
  [[nodiscard]] bool is_idle();

  // Taking
  /// Takes the tensors of a message of kind `data`. An unreadable message is an error; if that is
  /// the peer's fault, the peer is told and the channel is over.
  [[nodiscard]] Result<TensorDict> take(Received received);
  /// Takes the text of one of kind `bytes`.
  [[nodiscard]] std::string take_text(Received received);
  void drop(Received&& received) TENDON_EXCLUDES(receive_mutex());
  /// The same under the receive lock.
  void drop_here(Received&& received) TENDON_REQUIRES(receive_mutex());

  /// Says the end, and returns the pipe.
  void close() TENDON_EXCLUDES(receive_mutex());

  // ChannelEvents
  void on_arrived() override;
  void on_room() override { flush(); }
  void on_over() override;

 private:
  struct Outgoing {
    std::shared_ptr<const KeptBody> message;
    CallWord word;
  };
  struct Unsent {
    CallWord word;
    Error why;
  };
  [[nodiscard]] bool put(Outgoing outgoing);
  void flush();
  [[nodiscard]] bool may_show(const Outgoing& outgoing) const TENDON_REQUIRES(mutex_);
  /// Hands over the complete messages at the head of the inbox.
  void hand_over() TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] Result<Received> read(Incoming&& incoming) TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] Result<void> open_or_close(const CallWord& word);
  /// Reports a taken message: sends its credit, if one is due.
  void tell_taken(Incoming& incoming) TENDON_REQUIRES(receive_mutex());
  void drop_unsent();

  const std::shared_ptr<Entities> entities_;
  const Role role_;
  const std::weak_ptr<Side> side_;
  const std::shared_ptr<SampleChannel> out_;
  Channel channel_;
  const BodyReader bodies_;
  std::shared_ptr<Fanout> sender_;
  mutable Mutex mutex_;
  std::deque<Outgoing> outgoing_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t outgoing_bytes_ TENDON_GUARDED_BY(mutex_) = 0;  // in slots
  std::set<std::uint64_t> open_ TENDON_GUARDED_BY(mutex_);      // requests without an answer
};

}  // namespace tendon::v0::detail
