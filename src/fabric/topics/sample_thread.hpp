// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/result.hpp>
#include <utility>

#include "core/thread.hpp"

namespace tendon::v0::detail {

class SubscriberCore;

/// The thread in which SubscriberOptions::on_sample is called, until its subscriber is closed.
///
/// Owns:    the thread, which has a share of the subscriber.
/// Threads: one at a time.
/// Errors:  resource_exhausted without a thread. Exceptions of the function are logged.
/// Blocks:  join() and the destructor, while the function runs.
/// Cost:    a thread.
class SampleThread {
 public:
  /// Precondition: nobody has received from it yet.
  [[nodiscard]] static Result<std::unique_ptr<SampleThread>> start(
      std::shared_ptr<SubscriberCore> subscriber);
  explicit SampleThread(Thread thread) : thread_(std::move(thread)) {}

  /// Waits for the end of the function, after the subscriber was closed. Called by the function
  /// itself it waits for nothing.
  void join() noexcept { thread_.join(); }

 private:
  Thread thread_;
};

}  // namespace tendon::v0::detail
