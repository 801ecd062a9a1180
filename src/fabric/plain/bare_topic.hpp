// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/publisher.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>

#include "fabric/plain/plain_codec.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A publisher that is a plain Zenoh peer: its messages look like any other program's.
///
/// Owns:    its declarations at Zenoh.
/// Threads: thread-safe; nothing of Zenoh is called or destroyed under its lock.
/// Errors:  declare() and publish(): those of ZenohPort. message_too_large; pipe_closed.
/// Blocks:  publish(): a moment, if a connection has no room; then Zenoh drops the sample.
/// Cost:    publish(): one copy of the sample, and the work of Zenoh.
class BareTopic : public std::enable_shared_from_this<BareTopic> {
 public:
  /// A thread of Zenoh calls `on_matching` when matches() has changed.
  [[nodiscard]] static Result<std::shared_ptr<BareTopic>> declare(
      ZenohPort& zenoh, const KeyExpression& key, PlainForm form,
      std::function<void()> on_matching);
  BareTopic(PlainForm form, std::function<void()> on_matching)
      : form_(std::move(form)), on_matching_(std::move(on_matching)) {}

  /// Publishes even if nobody subscribes.
  [[nodiscard]] Result<Published> publish(const TensorDict& sample) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<Published> publish(Bytes sample) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool matches() const noexcept { return matches_.load(std::memory_order_relaxed); }
  /// Samples that Zenoh took.
  [[nodiscard]] std::uint64_t put_count() const noexcept { return put_count_.load(); }
  /// Idempotent.
  void close() TENDON_EXCLUDES(mutex_);

 private:
  [[nodiscard]] Result<Published> put(Result<PlainMessage> message) TENDON_EXCLUDES(mutex_);

  const PlainForm form_;
  const std::function<void()> on_matching_;
  std::atomic<bool> matches_{false};
  std::atomic<std::uint64_t> put_count_{0};
  Mutex mutex_;
  std::shared_ptr<ZenohPublisher> publisher_ TENDON_GUARDED_BY(mutex_);  // null: closed
};

}  // namespace tendon::v0::detail
