// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <optional>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// The unix socket at which two processes of one user meet. It carries the frames of their
/// handshake, and the descriptors with which each proves that it is on this host. No other stream
/// carries descriptors. After the handshake the socket belongs to a link of shared memory.
class RendezvousSocket final : public ByteStream {
 public:
  /// Sent with `attach`: control block, doorbell, own pidfd.
  static constexpr std::size_t kDescriptors = 3;

  explicit RendezvousSocket(OwnedFd socket);

  [[nodiscard]] StreamIo read(std::span<const iovec> pieces) noexcept override;
  [[nodiscard]] StreamIo write(std::span<const iovec> pieces) noexcept override;
  void end_output() noexcept override;
  [[nodiscard]] int fd() const noexcept override { return socket_.get(); }
  [[nodiscard]] const StreamPeer& peer() const noexcept override { return peer_; }

  /// Sends the descriptors with the next bytes that are written. They remain the caller's.
  void pass(const std::array<int, kDescriptors>& descriptors) { passed_ = descriptors; }
  /// The received descriptors. Errors: protocol_violation for a wrong count, too_many_open_files
  /// when this process could not take them.
  [[nodiscard]] Result<std::array<OwnedFd, kDescriptors>> take_received();
  [[nodiscard]] OwnedFd release() { return std::move(socket_); }

 private:
  void keep_descriptors(const msghdr& message);

  OwnedFd socket_;
  StreamPeer peer_;
  std::optional<std::array<int, kDescriptors>> passed_;
  std::vector<OwnedFd> received_;  // at most one more than the expected number
  bool was_truncated_ = false;
};

}  // namespace tendon::v0::detail
