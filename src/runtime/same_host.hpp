// SPDX-License-Identifier: Apache-2.0
// The proof that both ends are on one host under one user. Each side maps memory that the other
// passed, and finds in it the nonce that was sent over the socket: docs/protocol.md, "Step by
// step".
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

/// The suffix of a connection's text in the proof of the same host, if the connection has a TLS
/// session. Only its two ends know it.
[[nodiscard]] std::string mark_of(const secure::TlsSession& session);

/// One side's half of the proof, and with it everything a shm link needs.
class SameHostProof {
 public:
  [[nodiscard]] static Result<SameHostProof> make();

  /// Sends `attach` on `stream`, which runs over `socket`, with its descriptors: control block,
  /// doorbell, own pidfd. `connection`: the connection that this proof covers.
  [[nodiscard]] HandshakeStep send_attach(HandshakeStream& stream, RendezvousSocket& socket,
                                          int doorbell_fd, std::string connection);
  /// Maps the peer's memory from `attach`, and checks that its nonce is there.
  [[nodiscard]] Result<void> receive_attach(RendezvousSocket& socket, const HelloMessage& attach);

  /// Makes the link over the socket of the proof, to the peer that sent `peer_hello` and has shown
  /// `proofs`, this one included. It renews the session that the proof is bound to. Call after
  /// receive_attach().
  [[nodiscard]] Result<std::shared_ptr<Link>> make_link(OwnedFd socket,
                                                        const HelloMessage& peer_hello,
                                                        const Proofs& proofs, ContextCore& context,
                                                        LinkRenewalOptions renewal);

 private:
  SameHostProof(std::shared_ptr<Segment> mine, Nonce128 nonce, OwnedFd process)
      : mine_(std::move(mine)), nonce_(nonce), process_(std::move(process)) {}

  std::shared_ptr<Segment> mine_;
  Nonce128 nonce_;
  OwnedFd process_;  // a pidfd of this process, which shows its death to the peer
  std::shared_ptr<Segment> theirs_;
  OwnedFd peer_doorbell_;
  OwnedFd peer_process_;
};

}  // namespace tendon::v0::detail
