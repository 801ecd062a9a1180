// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>

#include "runtime/lane.hpp"
#include "secure/tls_handshake.hpp"
#include "session/proofs.hpp"
#include "transport/link_renewal.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// The protection of the connections that one call of connect() opens.
///
/// Owns:    a share of the credentials; for the lanes, the key of the link's session.
/// Threads: one at a time.
/// Errors:  those of a SecureStream.
/// Blocks:  never.
/// Cost:    nothing without TLS.
class SecureDial {
 public:
  explicit SecureDial(Security security) : security_(std::move(security)) {}

  [[nodiscard]] Profile profile() const noexcept { return security_.profile; }
  /// invalid_argument where the profile and the credentials do not match; `forked` where the
  /// credentials belong to a parent process.
  [[nodiscard]] Result<void> check(std::string_view where) const;
  /// Wraps the stream in TLS if the profile is secure. A lane proves by the key of the link's
  /// session that it has the same two ends. The listener must prove to be the dialled `host`,
  /// unless the program names another peer. This end proves the key of `living`, a link to the same
  /// place, while the file has that key; otherwise it proves the first key.
  [[nodiscard]] Result<std::unique_ptr<ByteStream>> over(std::unique_ptr<ByteStream> stream,
                                                         Lane lane, std::string_view host = {},
                                                         const Proofs& living = {}) const;
  /// How a link renews `session`, which this end has dialled; null: there is none.
  [[nodiscard]] LinkRenewalOptions renewals_of(const secure::TlsSession* session,
                                               std::uint32_t lanes) const;
  /// Sets the session that later lanes join; null: there is none.
  void use(const secure::TlsSession* session);

 private:
  const Security security_;
  std::string session_id_;
  SecretBytes lane_key_;
};

}  // namespace tendon::v0::detail
