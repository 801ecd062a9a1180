// SPDX-License-Identifier: Apache-2.0
// The proof that both ends are on one host under one user: each maps memory that the other passed,
// and finds in it the nonce that was said over the socket: docs/protocol.md, "Step by step".
#pragma once

#include <memory>
#include <tendon/core/result.hpp>
#include <tendon/session/path.hpp>

#include "core/fd.hpp"
#include "memory/segment.hpp"
#include "runtime/engine.hpp"
#include "runtime/handshake_socket.hpp"

namespace tendon::v0::detail {

/// One side's half of the proof, and with it everything a shm link needs.
class SameHostProof {
 public:
  [[nodiscard]] static Result<SameHostProof> make();

  /// The `attach` frame and the descriptors that go with it: control block, doorbell, own pidfd.
  /// `connection`: the one that this proof is for, where it is another than the socket's own.
  [[nodiscard]] HandshakeStep send_attach(HandshakeSocket& socket, int doorbell_fd,
                                          std::string connection = {});
  /// Maps what the peer attached; its nonce must stand in its memory.
  [[nodiscard]] Result<void> receive_attach(HandshakeSocket& socket, const HelloMessage& attach);

  /// The link over the socket the proof was made on. Call after receive_attach().
  [[nodiscard]] Result<std::shared_ptr<Link>> make_link(OwnedFd socket,
                                                        const HelloMessage& peer_hello,
                                                        std::uint64_t cap_bytes, Path path);

 private:
  SameHostProof(std::shared_ptr<Segment> mine, Token nonce, OwnedFd process)
      : mine_(std::move(mine)), nonce_(nonce), process_(std::move(process)) {}

  std::shared_ptr<Segment> mine_;
  Token nonce_;
  OwnedFd process_;  // a pidfd of this very process: the peer learns of its death by it
  std::shared_ptr<Segment> theirs_;
  OwnedFd peer_doorbell_;
  OwnedFd peer_process_;
};

}  // namespace tendon::v0::detail
