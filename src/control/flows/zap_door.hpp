// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/thread.hpp"

namespace tendon::v0::detail {

/// Admits workers of the present roster at sockets between hosts, and nobody else. It answers the
/// questions that ZeroMQ asks about each connection (ZAP, https://rfc.zeromq.org/spec/27).
///
/// Owns:    its socket, a thread.
/// Threads: safe everywhere.
/// Errors:  open(): zmq::error_t; resource_exhausted without a thread.
/// Blocks:  its end waits for the thread: the context must have been shut down.
/// Cost:    a thread that sleeps.
class ZapDoor {
 public:
  /// Call it before a socket of this context is bound.
  [[nodiscard]] static Result<std::unique_ptr<ZapDoor>> open(zmq::context_t& context);
  explicit ZapDoor(zmq::socket_t socket) : socket_(std::move(socket)) {}
  ZapDoor(const ZapDoor&) = delete;
  ZapDoor& operator=(const ZapDoor&) = delete;
  ~ZapDoor() = default;

  /// Admits from now on the holders of these public keys (40 characters of Z85).
  void let_in(const std::vector<std::string>& public_keys) TENDON_EXCLUDES(mutex_);

 private:
  void run();
  [[nodiscard]] bool may_enter(const std::string& mechanism, const std::string& key)
      TENDON_EXCLUDES(mutex_);

  zmq::socket_t socket_;
  Mutex mutex_;
  std::set<std::string> keys_ TENDON_GUARDED_BY(mutex_);  // 32 bytes each
  Thread thread_;
};

}  // namespace tendon::v0::detail
