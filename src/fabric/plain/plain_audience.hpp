// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <utility>

#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// Finds out whether a subscriber that Zenoh reports is a plain peer. Zenoh does not tell who
/// subscribes. Subscribers of Tendon that hear plain peers say so in their announcements, which
/// arrive before their subscriptions: if none is announced, it is a plain peer. Those of the
/// publisher's own Context hear by a session of their own, and count as all others.
///
/// Owns:    one question at most.
/// Threads: thread-safe; nothing of Zenoh is called or destroyed under its lock.
/// Errors:  none: without an answer nobody is known to be plain.
/// Blocks:  close() and the destructor: for a callback that runs.
/// Cost:    ask_if_due(): a question to the router, ten times a second at most.
class PlainAudience : public std::enable_shared_from_this<PlainAudience> {
 public:
  /// How long an answer holds, and the time after which the question is repeated.
  static constexpr std::chrono::milliseconds kHolds{1000};
  static constexpr std::chrono::milliseconds kAskAgain{100};

  /// A thread of Zenoh calls `on_answer`.
  PlainAudience(std::shared_ptr<ZenohPort> zenoh, KeyExpression topic,
                std::function<void()> on_answer)
      : zenoh_(std::move(zenoh)), topic_(std::move(topic)), on_answer_(std::move(on_answer)) {}

  /// Call it while Zenoh reports a subscriber.
  void ask_if_due() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool is_plain() const TENDON_EXCLUDES(mutex_);
  /// Stops asking. Idempotent.
  void close() TENDON_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Found : std::uint8_t { nobody, subscriber };  ///< of Tendon, that hears plain peers
  struct Answer {
    Clock::time_point asked;
    Found found = Found::nobody;
  };

  void on_key(std::string_view key) TENDON_EXCLUDES(mutex_);
  void on_end(Ending ending) TENDON_EXCLUDES(mutex_);

  const std::shared_ptr<ZenohPort> zenoh_;
  const KeyExpression topic_;
  const std::function<void()> on_answer_;
  mutable Mutex mutex_;
  ZenohPort::Handle request_ TENDON_GUARDED_BY(mutex_);
  std::optional<Answer> open_ TENDON_GUARDED_BY(mutex_);  // found so far
  std::optional<Answer> last_ TENDON_GUARDED_BY(mutex_);
  Clock::time_point asked_ TENDON_GUARDED_BY(mutex_);
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
