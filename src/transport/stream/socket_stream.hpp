// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/fd.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// Returns the user at the other end of a unix socket, according to the kernel: the largest number
/// if it names none, nothing for a socket of another kind.
[[nodiscard]] std::optional<std::uint32_t> peer_user(int socket) noexcept;

/// A connected, non-blocking TCP or unix socket as a ByteStream. A cable is the near end of a
/// socketpair, so what the kernel says of its user does not describe the peer.
class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(OwnedFd socket);
  SocketStream(OwnedFd socket, StreamPeer peer)
      : socket_(std::move(socket)), peer_(std::move(peer)) {}

  [[nodiscard]] StreamIo read(std::span<const iovec> pieces) noexcept override;
  [[nodiscard]] StreamIo write(std::span<const iovec> pieces) noexcept override;
  void end_output() noexcept override;
  [[nodiscard]] int fd() const noexcept override { return socket_.get(); }
  [[nodiscard]] const StreamPeer& peer() const noexcept override { return peer_; }
  void set_lease(std::chrono::milliseconds lease) noexcept override;
  void discard_input() noexcept override;

 private:
  const OwnedFd socket_;
  StreamPeer peer_;
};

}  // namespace tendon::v0::detail
