// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "runtime/acceptor.hpp"
#include "runtime/handshake_socket.hpp"
#include "runtime/same_host.hpp"

namespace tendon::v0::detail {

/// The accepting side of one handshake, driven by its socket. Over TCP it may open a rendezvous, a
/// unix socket in the runtime directory, where the connector proves that it is on this host; the
/// connection made there is an Admission of its own with this one as parent.
class Admission final : public FdHandler,
                        public Timed,
                        public std::enable_shared_from_this<Admission> {
 public:
  Admission(std::shared_ptr<Acceptor> acceptor, Door::Number number, OwnedFd fd,
            std::shared_ptr<Admission> parent, bool is_unix);
  ~Admission() override;

  [[nodiscard]] Result<void> start();
  /// Ends it, from outside.
  void cancel();

  void on_ready(int fd, std::uint32_t events) override;
  /// Its time may have passed, or its place be gone.
  void on_time() override;

 private:
  void advance() TENDON_REQUIRES(mutex_);
  void on_rendezvous() TENDON_REQUIRES(mutex_);
  /// Each answers a frame; true while the handshake goes on.
  bool on_hello(const HelloMessage& hello) TENDON_REQUIRES(mutex_);
  bool on_attach(const HelloMessage& attach) TENDON_REQUIRES(mutex_);
  bool on_path(const HelloMessage& path) TENDON_REQUIRES(mutex_);
  bool on_lane(const HelloMessage& lane) TENDON_REQUIRES(mutex_);
  bool on_ready_frame() TENDON_REQUIRES(mutex_);
  bool refuse(Error error) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<Token> open_rendezvous() TENDON_REQUIRES(mutex_);
  void close_rendezvous() TENDON_REQUIRES(mutex_);
  void finish() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Engine& engine() const { return *acceptor_->engine_; }

  Mutex mutex_;  // one event at a time
  std::shared_ptr<Acceptor> acceptor_;
  const Door::Number number_;
  HandshakeSocket socket_ TENDON_GUARDED_BY(mutex_);
  const std::shared_ptr<Admission> parent_;
  const bool is_unix_;
  const std::string connection_;  // of a TCP connection: what a proof must be for
  bool finished_ TENDON_GUARDED_BY(mutex_) = false;
  std::uint64_t timer_ TENDON_GUARDED_BY(mutex_) = 0;

  // Set once, before a child can exist that compares it with its own: so without the lock.
  std::optional<HelloMessage> peer_;
  OwnedFd rendezvous_ TENDON_GUARDED_BY(mutex_);
  std::string rendezvous_path_ TENDON_GUARDED_BY(mutex_);
  std::optional<SameHostProof> proof_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> proved_{false};        // a child mapped the connector's memory
  std::atomic<bool> child_linked_{false};  // and became a shm link
};

}  // namespace tendon::v0::detail
