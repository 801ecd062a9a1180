// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/result.hpp>
#include <thread>

namespace tendon::v0::detail {

class ContextCore;
class SubscriberCore;

/// The thread in which SubscriberOptions::on_sample is called, until its subscriber is closed.
///
/// Owns:    the thread, which has a share of the subscriber.
/// Threads: one at a time.
/// Errors:  resource_exhausted without a thread. What the function throws is logged.
/// Blocks:  join() and the destructor, while the function runs.
/// Cost:    a thread.
class SampleThread {
 public:
  /// Nobody has received from it yet.
  [[nodiscard]] static Result<std::unique_ptr<SampleThread>> start(
      std::shared_ptr<SubscriberCore> subscriber);
  SampleThread() = default;
  SampleThread(const SampleThread&) = delete;
  SampleThread& operator=(const SampleThread&) = delete;
  ~SampleThread() { join(); }

  /// The subscriber is closed: waits for the end of the function. Called by the function itself it
  /// waits for nothing.
  void join();

 private:
  std::shared_ptr<ContextCore> context_;
  std::thread thread_;
};

}  // namespace tendon::v0::detail
