// SPDX-License-Identifier: Apache-2.0
// From Zenoh's threads to one of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <variant>

#include "core/thread.hpp"
#include "fabric/zenoh/zenoh_event.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// The callbacks of a session. Zenoh calls from many threads, holds locks meanwhile and goes on
/// while the process exits; what it tells is queued here, and told by one thread.
///
/// Owns:    the callbacks, the thread, and what is not told yet.
/// Threads: thread-safe.
/// Errors:  start(): resource_exhausted without a thread. Messages above kMaxQueuedBytes and tokens
///          above kMaxQueuedTokenBytes are dropped and counted. A recipient that missed some is
///          told so, in its turn, by one Missed; its request ends as `timed_out`. Nothing else is
///          dropped.
/// Blocks:  remove() and close(): for the callback that runs, unless they are called in it.
/// Cost:    a lock, a place in the queue and a wake-up for all that is told.
class ZenohCallbacks : public std::enable_shared_from_this<ZenohCallbacks> {
 public:
  using Number = std::uint64_t;
  using Token = ZenohToken;
  using Missed = ZenohMissed;
  using Event = ZenohEvent;
  using Callback = std::function<void(Event)>;

  /// With its thread.
  [[nodiscard]] static Result<std::shared_ptr<ZenohCallbacks>> start();
  ZenohCallbacks(const ZenohCallbacks&) = delete;
  ZenohCallbacks& operator=(const ZenohCallbacks&) = delete;
  ~ZenohCallbacks() = default;

  [[nodiscard]] Number add(Callback callback) TENDON_EXCLUDES(mutex_);
  /// A callback for a subscription: messages, and how many were missed of each key.
  [[nodiscard]] Number add_subscriber(ZenohPort::OnMessage on_message,
                                      ZenohPort::OnDropped on_dropped) TENDON_EXCLUDES(mutex_);
  /// One that set_state() tells of changes.
  [[nodiscard]] Number add_listener(Callback callback) TENDON_EXCLUDES(mutex_);
  /// It is not called any more.
  void remove(Number number) TENDON_EXCLUDES(mutex_);
  /// None is called any more. The thread ends.
  void close() TENDON_EXCLUDES(mutex_);

  void post(Number number, Event event) noexcept TENDON_EXCLUDES(mutex_);
  /// So many messages of this key were dropped before they came here.
  void post_missed(Number number, const std::string& key, std::uint64_t count)
      TENDON_EXCLUDES(mutex_);
  void set_state(SessionState state) noexcept TENDON_EXCLUDES(mutex_);
  [[nodiscard]] SessionState state() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t dropped() const TENDON_EXCLUDES(mutex_);

 private:
  struct Recipient {
    std::shared_ptr<Callback> callback;
    bool listens = false;            ///< to changes of the state
    bool missed = false;             ///< something, for want of room
    std::optional<Missed> untold{};  ///< what it missed, while the word of that is queued
  };
  using Queued = ZenohEventQueue::Queued;
  struct Call {
    std::shared_ptr<Callback> callback;  ///< none where the recipient is gone
    std::unique_ptr<Queued> what;        ///< none once all is closed
  };

  ZenohCallbacks() = default;
  [[nodiscard]] Number add(Recipient recipient) TENDON_EXCLUDES(mutex_);
  void run() TENDON_EXCLUDES(mutex_);
  void push(Number number, Event event) TENDON_REQUIRES(mutex_);
  void miss(Number number, Recipient& recipient, const Event& event) TENDON_REQUIRES(mutex_);
  /// Messages that this recipient will be told it missed.
  [[nodiscard]] Missed& untold_of(Number number, Recipient& recipient) TENDON_REQUIRES(mutex_);
  /// Waits for the next.
  [[nodiscard]] Call begin_call() TENDON_EXCLUDES(mutex_);
  void end_call() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool in_callback() const { return thread_.is_current(); }

  Thread thread_;  ///< set before anybody else has this
  mutable Mutex mutex_;
  CondVar queued_;
  CondVar returned_;
  std::map<Number, Recipient> recipients_ TENDON_GUARDED_BY(mutex_);
  ZenohEventQueue queue_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t dropped_ TENDON_GUARDED_BY(mutex_) = 0;
  Number last_number_ TENDON_GUARDED_BY(mutex_) = 0;
  Number running_ TENDON_GUARDED_BY(mutex_) = 0;  ///< 0: none
  SessionState state_ TENDON_GUARDED_BY(mutex_) = SessionState::down;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
