// SPDX-License-Identifier: Apache-2.0
// Hands events from Zenoh's threads to one of ours.
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

/// The callbacks of a session. Zenoh calls from many threads, holds locks meanwhile and continues
/// while the process exits. Its events are queued here, and one thread reports them.
///
/// Owns:    the callbacks, the thread, and the queued events.
/// Threads: thread-safe.
/// Errors:  start(): resource_exhausted without a thread. Messages above kMaxQueuedBytes and tokens
///          above kMaxQueuedTokenBytes are dropped and counted. A recipient that missed some gets
///          one Missed, in its turn; its request ends as `timed_out`. Nothing else is dropped.
/// Blocks:  remove() and close(): for the callback that runs, unless they are called in it.
/// Cost:    a lock, a place in the queue and a wake-up for each event.
class ZenohCallbacks : public std::enable_shared_from_this<ZenohCallbacks> {
 public:
  using Number = std::uint64_t;
  using Token = ZenohToken;
  using Missed = ZenohMissed;
  using Event = ZenohEvent;
  using Callback = std::function<void(Event)>;

  /// Starts it with its thread.
  [[nodiscard]] static Result<std::shared_ptr<ZenohCallbacks>> start();
  ZenohCallbacks(const ZenohCallbacks&) = delete;
  ZenohCallbacks& operator=(const ZenohCallbacks&) = delete;
  ~ZenohCallbacks() = default;

  [[nodiscard]] Number add(Callback callback) TENDON_EXCLUDES(mutex_);
  /// Adds a callback for a subscription: messages, and how many were missed of each key.
  [[nodiscard]] Number add_subscriber(ZenohPort::OnMessage on_message,
                                      ZenohPort::OnDropped on_dropped) TENDON_EXCLUDES(mutex_);
  /// Adds a callback for changes of set_state().
  [[nodiscard]] Number add_listener(Callback callback) TENDON_EXCLUDES(mutex_);
  /// Stops calls of this callback.
  void remove(Number number) TENDON_EXCLUDES(mutex_);
  /// Stops all calls. The thread ends.
  void close() TENDON_EXCLUDES(mutex_);

  void post(Number number, Event event) noexcept TENDON_EXCLUDES(mutex_);
  /// Notes that so many messages of this key were dropped before they arrived here.
  void post_missed(Number number, const std::string& key, std::uint64_t count)
      TENDON_EXCLUDES(mutex_);
  void set_state(SessionState state) noexcept TENDON_EXCLUDES(mutex_);
  [[nodiscard]] SessionState state() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t dropped() const TENDON_EXCLUDES(mutex_);

 private:
  struct Recipient {
    std::shared_ptr<Callback> callback;
    bool listens = false;            ///< to changes of the state
    bool missed = false;             ///< an event, for want of room
    std::optional<Missed> untold{};  ///< the missed events, while their report is queued
  };
  using Queued = ZenohEventQueue::Queued;
  struct Call {
    std::shared_ptr<Callback> callback;  ///< null if the recipient was removed
    std::unique_ptr<Queued> what;        ///< null once all is closed
  };

  ZenohCallbacks() = default;
  [[nodiscard]] Number add(Recipient recipient) TENDON_EXCLUDES(mutex_);
  void run() TENDON_EXCLUDES(mutex_);
  void push(Number number, Event event) TENDON_REQUIRES(mutex_);
  void miss(Number number, Recipient& recipient, const Event& event) TENDON_REQUIRES(mutex_);
  /// The messages that this recipient missed, to be reported.
  [[nodiscard]] Missed& untold_of(Number number, Recipient& recipient) TENDON_REQUIRES(mutex_);
  /// Waits for the next call.
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
