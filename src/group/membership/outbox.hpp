// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "channel/send_window.hpp"
#include "group/membership/envelope.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// A message on its way out. Its memory is named by `parts` and held by `keep`, unless the caller
/// that queued it waits until it is done or withdrawn.
struct Outbound {
  Envelope envelope;
  std::vector<BodyPart> parts;
  std::vector<Storage> keep;
  std::atomic<bool> done{false};         ///< its memory may be reused
  std::atomic<bool> handed_over{false};  ///< the link has taken all of it; set before `done`
  std::optional<Error> failure;          ///< else: why the link did not; set before `done`

  SendOp op;  ///< the channel's
};

/// What a channel has to send that may wait: steps of collectives, in order, and behind them
/// messages from member to member (EnvelopeKind::message), in order and within a window of their
/// own. So collectives never wait for a program that does not receive.
///
/// Owns:    what is queued, a reference to the link.
/// Threads: thread-safe; its lock is held while the link sends.
/// Errors:  in the message that did not go.
/// Blocks:  never, but for withdraw(), take_back_held() and wait_for_sender(), while another thread
///          sends.
/// Cost:    that of the link.
class Outbox {
 public:
  explicit Outbox(Link& link);

  /// Appends a message, whose `op` is ready. It fails at once when all has ended before.
  void add(std::shared_ptr<Outbound> outbound);
  /// Sends what can be sent now. True while something is left.
  bool advance();
  /// Takes back a message that is not done; when this returns its memory is free. False when it was
  /// done already, or has been handed over now.
  bool withdraw(Outbound& outbound);
  /// Takes back the messages of this group that wait until the peer has taken earlier ones, which
  /// it may never do: they end with `why`. Returns how many.
  std::size_t take_back_held(std::uint64_t group, const Error& why);
  /// When this returns, what another thread has sent meanwhile is noted in its message. Waits for
  /// that thread, not for the peer.
  void wait_for_sender() { const Lock lock(mutex_); }
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(); }
  /// The peer has taken messages. False: more than were sent.
  [[nodiscard]] bool on_credit(const Descriptor& credit) noexcept {
    return window_.on_credit(credit);
  }
  /// Nothing goes out any more: what is queued ends with `why`, and so does what comes after it.
  void end(const Error& why);
  /// Why, after end().
  [[nodiscard]] std::optional<Error> end_error() const {
    const Lock lock(mutex_);
    return end_error_;
  }

 private:
  using Queue = std::deque<std::shared_ptr<Outbound>>;
  [[nodiscard]] Queue* next_queue() TENDON_REQUIRES(mutex_);
  void end_begun(std::optional<Error> failure) TENDON_REQUIRES(mutex_);

  Link& link_;
  mutable Mutex mutex_;
  Queue steps_ TENDON_GUARDED_BY(mutex_);
  Queue messages_ TENDON_GUARDED_BY(mutex_);
  // The one that the link has begun.
  std::shared_ptr<Outbound> begun_ TENDON_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};
  std::optional<Error> end_error_ TENDON_GUARDED_BY(mutex_);
  SendWindow window_;  // messages that were begun and not taken back
};

}  // namespace tendon::v0::detail
