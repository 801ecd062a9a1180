// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <tendon/core/mutex.hpp>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace tendon::v0::detail {

/// Lets workers of the present roster in at sockets between hosts, and nobody else: it answers the
/// questions that ZeroMQ asks about each connection (ZAP, https://rfc.zeromq.org/spec/27).
///
/// Owns:    its socket, a thread.
/// Threads: safe everywhere.
/// Errors:  zmq::error_t from its constructor.
/// Blocks:  its end, for the thread: the context must have been shut down.
/// Cost:    a thread that sleeps.
class ZapDoor {
 public:
  /// Before a socket of this context is bound.
  explicit ZapDoor(zmq::context_t& context);
  ZapDoor(const ZapDoor&) = delete;
  ZapDoor& operator=(const ZapDoor&) = delete;
  ~ZapDoor();

  /// From now on those with these public keys (40 characters of Z85) may connect.
  void let_in(const std::vector<std::string>& public_keys) TENDON_EXCLUDES(mutex_);

 private:
  void run();
  [[nodiscard]] bool may_enter(const std::string& mechanism, const std::string& key)
      TENDON_EXCLUDES(mutex_);

  zmq::socket_t socket_;
  Mutex mutex_;
  std::set<std::string> keys_ TENDON_GUARDED_BY(mutex_);  // 32 bytes each
  std::thread thread_;
};

}  // namespace tendon::v0::detail
