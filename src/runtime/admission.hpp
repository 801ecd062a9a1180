// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "runtime/acceptor.hpp"
#include "runtime/handshake_socket.hpp"
#include "runtime/same_host.hpp"

namespace tendon::inline v0::detail {

/// The accepting side of one handshake, driven by its socket. Over TCP it may open a rendezvous, a
/// unix socket in the runtime directory, where the connector proves that it is on this host; the
/// connection made there is an Admission of its own with this one as parent.
class Admission final : public FdHandler,
                        public Timed,
                        public std::enable_shared_from_this<Admission> {
 public:
  Admission(std::shared_ptr<Acceptor> acceptor, OwnedFd fd, std::shared_ptr<Admission> parent,
            bool is_unix);
  ~Admission() override;

  [[nodiscard]] Result<void> start();
  /// Ends it, from outside.
  void cancel();

  void on_ready(int fd, std::uint32_t events) override;
  void on_time() override;

 private:
  void advance();
  void on_rendezvous();
  /// Each answers a frame; true while the handshake goes on.
  bool on_hello(const HelloMessage& hello);
  bool on_attach(const HelloMessage& attach);
  bool on_path(const HelloMessage& path);
  bool on_lane(const HelloMessage& lane);
  bool on_ready_frame();
  bool refuse(Error error);
  [[nodiscard]] Result<Token> open_rendezvous();
  void close_rendezvous();
  void finish();
  [[nodiscard]] Engine& engine() const { return *acceptor_->engine_; }

  std::mutex mutex_;  // one event at a time
  std::shared_ptr<Acceptor> acceptor_;
  HandshakeSocket socket_;
  const std::shared_ptr<Admission> parent_;
  const bool is_unix_;
  const std::string connection_;  // of a TCP connection: what a proof must be for
  bool finished_ = false;
  std::uint64_t timer_ = 0;

  std::optional<HelloMessage> peer_;
  Token ticket_{};
  OwnedFd rendezvous_;
  std::string rendezvous_path_;
  std::optional<SameHostProof> proof_;
  std::atomic<bool> proved_{false};        // a child mapped the connector's memory
  std::atomic<bool> child_linked_{false};  // and became a shm link
};

}  // namespace tendon::inline v0::detail
