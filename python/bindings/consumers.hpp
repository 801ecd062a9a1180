// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "cuda/stream_name.hpp"

namespace tendon::python {

using Stream = detail::cuda::StreamName;

/// The streams of other libraries that have memory of a GPU. They may write to it, and nothing
/// reports when they have enqueued their last write.
///
/// Owns:    the names of streams. Each one lives until its consumer has dropped the memory.
/// Threads: safe from all.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a list node for each consumer.
class Consumers {
 public:
  using Entry = std::list<Stream>::iterator;

  [[nodiscard]] Entry add(Stream stream) {
    const detail::Lock lock(mutex_);
    return streams_.insert(streams_.end(), stream);
  }
  void remove(Entry entry) {
    const detail::Lock lock(mutex_);
    streams_.erase(entry);
  }
  [[nodiscard]] std::vector<Stream> streams() const {
    const detail::Lock lock(mutex_);
    return {streams_.begin(), streams_.end()};
  }

 private:
  mutable detail::Mutex mutex_;
  std::list<Stream> streams_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::python
