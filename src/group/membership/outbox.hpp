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

/// A message on its way out. `parts` names its memory and `keep` holds it, unless the caller that
/// queued it waits until it is done or withdrawn.
struct Outbound {
  Envelope envelope;
  std::vector<BodyPart> parts;
  std::vector<Storage> keep;
  std::atomic<bool> done{false};         ///< its memory may be reused
  std::atomic<bool> handed_over{false};  ///< the link has taken all of it; set before `done`
  std::optional<Error> failure;          ///< the reason if the link did not; set before `done`

  SendOp op;  ///< the channel's
};

/// The messages of a channel that may wait: steps of collectives, in order, and after them messages
/// between members (EnvelopeKind::message), in order and within a window of their own. Collectives
/// therefore never wait for a program that does not receive.
///
/// Owns:    queued messages, a reference to the link.
/// Threads: thread-safe; its lock is held while the link sends.
/// Errors:  in the message that was not sent.
/// Blocks:  never, but for withdraw(), take_back_held() and wait_for_sender(), while another thread
///          sends.
/// Cost:    that of the link.
class Outbox {
 public:
  explicit Outbox(Link& link);

  /// Appends a message whose `op` is ready. It fails at once if the outbox has ended.
  void add(std::shared_ptr<Outbound> outbound);
  /// Sends as much as can leave now. True while something is left.
  bool advance();
  /// Takes back a message that is not done; its memory is free on return. False if it was done
  /// already, or is handed over now.
  bool withdraw(Outbound& outbound);
  /// Takes back this group's messages that wait until the peer has taken earlier ones, which it may
  /// never do. They end with `why`. Returns their number.
  std::size_t take_back_held(std::uint64_t group, const Error& why);
  /// Waits until a send of another thread is noted in its message; not for the peer.
  void wait_for_sender() { const Lock lock(mutex_); }
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(); }
  /// Notes that the peer has taken messages. False: more than were sent.
  [[nodiscard]] bool on_credit(const Descriptor& credit) noexcept {
    return window_.on_credit(credit);
  }
  /// Ends the outbox: queued and later messages fail with `why`.
  void end(const Error& why);
  /// The reason, after end().
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
  // The message that the link has begun.
  std::shared_ptr<Outbound> begun_ TENDON_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};
  std::optional<Error> end_error_ TENDON_GUARDED_BY(mutex_);
  SendWindow window_;  // counts messages that were begun and not taken back
};

}  // namespace tendon::v0::detail
