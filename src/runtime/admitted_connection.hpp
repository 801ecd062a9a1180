// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <utility>

#include "runtime/same_host.hpp"
#include "secure/tls_handshake.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {

/// The facts that an acceptor has established about a connection during its handshake, apart from
/// the claims of the peer.
///
/// Owns:    texts.
/// Threads: one at a time; constant once the peer's hello has arrived.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    some strings.
class AdmittedConnection {
 public:
  AdmittedConnection() = default;
  explicit AdmittedConnection(std::string addresses) : addresses_(std::move(addresses)) {}

  /// Notes the proofs of a TLS session; null: there is no TLS.
  void note_session(const secure::TlsSession* session) {
    if (session == nullptr) return;
    proved_.identity = session->identity;
    proved_.credential = session->credential;
    how_ = session->proof;
    mark_ = mark_of(*session);
  }
  /// The proofs about the peer from TLS; none about its host.
  [[nodiscard]] const Proofs& proved() const noexcept { return proved_; }
  /// The kind of proof in the TLS handshake.
  [[nodiscard]] secure::PeerProof how() const noexcept { return how_; }
  /// The same proofs, plus that of this user on this host.
  [[nodiscard]] Proofs proved_here() const {
    Proofs here = proved_;
    here.host = Proofs::Host::same_user;
    return here;
  }
  /// The two ends of its TCP connection.
  [[nodiscard]] const std::string& addresses() const noexcept { return addresses_; }
  /// Checks that a proof of the same host covers this connection: its session, then its two ends.
  /// Errors: protocol_violation for another session, which only a member that ends TLS on both
  /// sides can cause; permission_denied for other ends, as behind a proxy.
  [[nodiscard]] Result<void> check_proof(std::string_view for_connection) const {
    constexpr std::string_view kWhere = "context.admission";
    if (!for_connection.ends_with(mark_)) {
      return Error{
          ErrorCode::protocol_violation, kWhere,
          "the proof of the same host is for another session than that of the connection '" +
              addresses_ + "': another process, which has the credentials, stands between"};
    }
    if (for_connection != addresses_ + mark_) {
      return Error{ErrorCode::permission_denied, kWhere,
                   "the proof of the same host is not for the connection '" + addresses_ +
                       "': another process relays bytes between the two"};
    }
    return {};
  }
  /// Returns true once, when the peer has begun a TLS handshake.
  [[nodiscard]] bool note_begun() noexcept { return !std::exchange(has_begun_, true); }

 private:
  std::string addresses_;
  Proofs proved_;
  secure::PeerProof how_ = secure::PeerProof::key;
  std::string mark_;
  bool has_begun_ = false;
};

}  // namespace tendon::v0::detail
