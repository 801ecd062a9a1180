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

/// What an acceptor knows of a connection whose handshake goes on, beside what its peer says.
///
/// Owns:    texts.
/// Threads: one at a time; nothing changes once the peer's hello has arrived.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    some strings.
class AdmittedConnection {
 public:
  AdmittedConnection() = default;
  explicit AdmittedConnection(std::string addresses) : addresses_(std::move(addresses)) {}

  /// TLS has proved this; null: there is no TLS.
  void note_session(const secure::TlsSession* session) {
    if (session == nullptr) return;
    proved_.identity = session->identity;
    proved_.credential = session->credential;
    how_ = session->proof;
    mark_ = mark_of(*session);
  }
  /// The peer, as TLS has proved it; nothing of its host.
  [[nodiscard]] const Proofs& proved() const noexcept { return proved_; }
  /// How it did.
  [[nodiscard]] secure::PeerProof how() const noexcept { return how_; }
  /// The same, with this user on this host.
  [[nodiscard]] Proofs proved_here() const {
    Proofs here = proved_;
    here.host = Proofs::Host::same_user;
    return here;
  }
  /// Its two ends, of TCP.
  [[nodiscard]] const std::string& addresses() const noexcept { return addresses_; }
  /// Checks that a proof of the same host is `for_connection`, this one: its session, then its two
  /// ends. Errors: protocol_violation for another session, which only a member that ends TLS on
  /// both sides can cause; permission_denied for other ends, as behind a proxy.
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
  /// True once: the peer has begun a handshake of TLS.
  [[nodiscard]] bool note_begun() noexcept { return !std::exchange(has_begun_, true); }

 private:
  std::string addresses_;
  Proofs proved_;
  secure::PeerProof how_ = secure::PeerProof::key;
  std::string mark_;
  bool has_begun_ = false;
};

}  // namespace tendon::v0::detail
