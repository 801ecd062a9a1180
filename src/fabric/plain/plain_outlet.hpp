// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <tendon/core/mutex.hpp>

#include "core/thread.hpp"

namespace tendon::v0::detail {

class PlainTopic;

/// The thread of a Context that puts samples for plain Zenoh peers, so that no caller of publish()
/// does.
///
/// Owns:    the thread, from the first sample on; shares of topics that have a sample for it.
/// Threads: thread-safe. Its lock is taken alone, or inside of a publisher's.
/// Errors:  none: without a thread topics keep their newest sample, and count the others.
/// Blocks:  stop(): for the put that runs.
/// Cost:    nothing without plain peers; else a wake-up of the thread for a sample.
class PlainOutlet {
 public:
  PlainOutlet() = default;
  PlainOutlet(const PlainOutlet&) = delete;
  PlainOutlet& operator=(const PlainOutlet&) = delete;
  ~PlainOutlet() { stop(); }

  /// Asks the topic to put its sample.
  void add(std::shared_ptr<PlainTopic> topic) TENDON_EXCLUDES(mutex_);
  /// Stops putting. Not on its thread.
  void stop() TENDON_EXCLUDES(mutex_);

 private:
  void run() TENDON_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar added_;
  std::deque<std::shared_ptr<PlainTopic>> topics_ TENDON_GUARDED_BY(mutex_);
  bool stopped_ TENDON_GUARDED_BY(mutex_) = false;
  Thread thread_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
