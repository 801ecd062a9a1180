// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// Wakes the caller when its socket is ready; the epoll does the rest.
class Readiness final : public FdHandler {
 public:
  void on_ready(int, std::uint32_t) override { ready_.store(true); }
  bool take() { return ready_.exchange(false); }

 private:
  std::atomic<bool> ready_{false};
};

/// Keeps a socket of this call in the Context's epoll while the object lives.
class Watch {
 public:
  static Result<Watch> make(ContextCore& context, int fd, std::uint32_t events) {
    auto readiness = std::make_shared<Readiness>();
    TENDON_CHECK(context.loop().watch(fd, events | EPOLLET, readiness));
    return Watch(context, fd, std::move(readiness));
  }
  Watch(Watch&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)),
        fd_(other.fd_),
        ready_(std::move(other.ready_)) {}
  Watch& operator=(Watch&&) = delete;
  ~Watch() { stop(); }
  /// Stops watching, because the descriptor passes to another owner.
  void stop() {
    if (auto* context = std::exchange(context_, nullptr)) context->loop().forget(fd_);
  }
  /// True if the socket became ready since the last call; for a caller that waits for several
  /// sockets.
  [[nodiscard]] bool take_ready() { return ready_->take(); }
  /// False when the deadline passed first.
  [[nodiscard]] bool wait(Deadline deadline) {
    return context_->wait(nullptr, deadline,
                          [this] { return ready_->take() || context_->unusable(); });
  }

 private:
  Watch(ContextCore& context, int fd, std::shared_ptr<Readiness> ready)
      : context_(&context), fd_(fd), ready_(std::move(ready)) {}
  ContextCore* context_;
  int fd_;
  std::shared_ptr<Readiness> ready_;
};

}  // namespace tendon::v0::detail
