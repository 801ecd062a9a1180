// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/fd.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// The user at the other end of a unix socket, by the kernel's word; the largest number when it
/// gives none, nothing for a socket of another kind.
[[nodiscard]] std::optional<std::uint32_t> peer_user(int socket) noexcept;

/// A connected, non-blocking TCP or unix socket as a ByteStream. A cable is the near end of a
/// socketpair: what the kernel says of that tells nothing of the peer.
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
