// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "session/handshake.hpp"

namespace tendon::v0::detail {

/// Moves the frames of one handshake over one non-blocking socket, and descriptors beside them.
///
/// It never reads past the frame it needs: what follows the last one belongs to the link, and on a
/// unix socket descriptors come with it.
class HandshakeSocket {
 public:
  HandshakeSocket(OwnedFd fd, Handshake handshake)
      : fd_(std::move(fd)), handshake_(std::move(handshake)) {}

  /// Reads what has come. Answers Next::read when more is needed; EOF and errors become
  /// Next::failed.
  [[nodiscard]] HandshakeStep advance();
  /// Sends `message` with descriptors of ours beside it. A frame that the socket does not take at
  /// once is a peer that does not read: frames are smaller than any socket's buffer.
  [[nodiscard]] HandshakeStep reply(const HelloMessage& message, std::span<const int> fds = {});
  /// Refuses with a reason; the connection ends.
  HandshakeStep reject(Error error);
  /// Sends what a step wants sent (a refusal of the machine itself).
  void flush(const HandshakeStep& step) { (void)send(step.send, {}); }

  [[nodiscard]] Handshake& handshake() noexcept { return handshake_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] OwnedFd release() { return std::move(fd_); }
  /// Has the peer said anything yet?
  [[nodiscard]] bool has_heard() const noexcept { return has_heard_; }
  /// Descriptors received so far, in order.
  [[nodiscard]] std::vector<OwnedFd>& received_fds() noexcept { return received_fds_; }

 private:
  [[nodiscard]] Result<void> send(std::span<const std::byte> bytes, std::span<const int> fds);

  OwnedFd fd_;
  Handshake handshake_;
  std::vector<std::byte> frame_;  // as far as it has come
  std::vector<OwnedFd> received_fds_;
  bool has_heard_ = false;
};

/// The uid at the other end of a unix socket, as the kernel says.
[[nodiscard]] Result<std::uint32_t> peer_user(int unix_socket);

}  // namespace tendon::v0::detail
