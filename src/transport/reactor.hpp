// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail {

/// Something with a descriptor in the Context's epoll.
class FdHandler {
 public:
  virtual ~FdHandler() = default;
  /// `events` as epoll gives them. Called by a thread that makes progress, several of
  /// them at a time, without locks held.
  virtual void on_ready(int fd, std::uint32_t events) = 0;
};

/// The Context's epoll, as links see it. Thread-safe.
class Reactor {
 public:
  virtual ~Reactor() = default;
  [[nodiscard]] virtual Result<void> watch(int fd, std::uint32_t events,
                                           std::weak_ptr<FdHandler> handler) = 0;
  virtual void change(int fd, std::uint32_t events) = 0;
  virtual void forget(int fd) = 0;
};

}  // namespace tendon::v0::detail
