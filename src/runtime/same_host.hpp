// SPDX-License-Identifier: Apache-2.0
// The proof that both ends are on one host under one user: each maps memory that the other passed,
// and finds in it the nonce that was said over the socket: docs/protocol.md, "Step by step".
#pragma once

#include <memory>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "memory/segment.hpp"
#include "runtime/context_core.hpp"
#include "runtime/handshake_stream.hpp"
#include "runtime/rendezvous_socket.hpp"
#include "secure/tls_handshake.hpp"
#include "session/proofs.hpp"
#include "transport/link_renewal.hpp"

namespace tendon::v0::detail {

/// What stands behind the text of a connection in the proof of the same host, where the connection
/// has a session of TLS: both ends know it, and nobody else.
[[nodiscard]] std::string mark_of(const secure::TlsSession& session);

/// One side's half of the proof, and with it everything a shm link needs.
class SameHostProof {
 public:
  [[nodiscard]] static Result<SameHostProof> make();

  /// Says `attach` on `stream`, which speaks over `socket`, with the descriptors that go beside it:
  /// control block, doorbell, own pidfd. `connection`: the one that this proof is for.
  [[nodiscard]] HandshakeStep send_attach(HandshakeStream& stream, RendezvousSocket& socket,
                                          int doorbell_fd, std::string connection);
  /// Maps what the peer attached; its nonce must stand in its memory.
  [[nodiscard]] Result<void> receive_attach(RendezvousSocket& socket, const HelloMessage& attach);

  /// The link over the socket that the proof was made on, to the peer that said `peer_hello` and
  /// has shown `proofs`, this one among them. It renews the session that the proof is bound to.
  /// Call after receive_attach().
  [[nodiscard]] Result<std::shared_ptr<Link>> make_link(OwnedFd socket,
                                                        const HelloMessage& peer_hello,
                                                        const Proofs& proofs, ContextCore& context,
                                                        LinkRenewalOptions renewal);

 private:
  SameHostProof(std::shared_ptr<Segment> mine, Nonce128 nonce, OwnedFd process)
      : mine_(std::move(mine)), nonce_(nonce), process_(std::move(process)) {}

  std::shared_ptr<Segment> mine_;
  Nonce128 nonce_;
  OwnedFd process_;  // a pidfd of this very process: the peer learns of its death by it
  std::shared_ptr<Segment> theirs_;
  OwnedFd peer_doorbell_;
  OwnedFd peer_process_;
};

}  // namespace tendon::v0::detail
