// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The epoll events that a link waits for on one of its streams: input from the beginning, output
/// once it is requested.
///
/// Threads: thread-safe.
class Interest {
 public:
  /// `always`: events that are wanted even while nothing is read or written.
  explicit Interest(std::uint32_t always) : always_(always) {}

  [[nodiscard]] Result<void> watch(Reactor& reactor, int fd, std::weak_ptr<FdHandler> handler) {
    const Lock lock(mutex_);
    fd_ = fd;
    reactor_ = &reactor;
    return reactor.watch(fd, mask(), std::move(handler));
  }
  void want_input() {
    if (!input_.load(std::memory_order_relaxed)) set(input_, Wanted::yes);
  }
  void drop_input() {
    if (input_.load(std::memory_order_relaxed)) set(input_, Wanted::no);
  }
  // Both take the lock even if nothing changes. A thread that drops output looks once more
  // afterwards, and must then see what the thread that wanted output has queued.
  void want_output() { set(output_, Wanted::yes); }
  void drop_output() { set(output_, Wanted::no); }
  [[nodiscard]] bool output() const { return output_.load(std::memory_order_relaxed); }
  void forget() {
    const Lock lock(mutex_);
    if (reactor_ != nullptr) reactor_->forget(fd_);
    reactor_ = nullptr;
  }

 private:
  enum class Wanted : std::uint8_t { no, yes };

  void set(std::atomic<bool>& flag, Wanted wanted) {
    const bool value = wanted == Wanted::yes;
    const Lock lock(mutex_);
    if (flag.exchange(value) != value && reactor_ != nullptr) reactor_->change(fd_, mask());
  }
  [[nodiscard]] std::uint32_t mask() const {
    return always_ | (input_ ? EPOLLIN : 0u) | (output_ ? EPOLLOUT : 0u);
  }

  const std::uint32_t always_;
  Mutex mutex_;
  Reactor* reactor_ TENDON_GUARDED_BY(mutex_) = nullptr;
  int fd_ TENDON_GUARDED_BY(mutex_) = -1;
  std::atomic<bool> input_{true};
  std::atomic<bool> output_{false};
};

}  // namespace tendon::v0::detail
