// SPDX-License-Identifier: Apache-2.0
#include "runtime/secure_dial.hpp"

#include <chrono>
#include <functional>
#include <utility>

#include "runtime/renewals.hpp"
#include "transport/stream/secure_stream.hpp"

namespace tendon::v0::detail {
namespace {

// A key of the same label is another one where its bytes differ.
bool has_key_of(const secure::Credentials& credentials, const Proofs& living) {
  if (!living.is_by_key()) return false;
  const SharedKey* const key =
      credentials.find_key(std::string_view(living.identity).substr(kKeyPrefix.size()));
  if (key == nullptr) return false;
  const auto id = key_id(*key);
  return id && *id == living.credential;
}

}  // namespace

Result<void> SecureDial::check(std::string_view where) const {
  return check_credentials(security_, where);
}

Result<std::unique_ptr<ByteStream>> SecureDial::over(std::unique_ptr<ByteStream> stream, Lane lane,
                                                     std::string_view host,
                                                     const Proofs& living) const {
  if (security_.profile != Profile::secure) return stream;
  security_.credentials->look(std::chrono::steady_clock::now());
  SecureStreamOptions options{.role = secure::TlsHandshake::Role::client,
                              .credentials = secure::Credentials::latest(security_.credentials),
                              .limits = security_.credentials->rotation().records};
  if (lane == Lane::bulk) {
    options.handshake.session_id = session_id_;
    options.handshake.session_key = lane_key_.bytes();
  } else {
    options.handshake.expected_peer = security_.peer.empty() ? std::string(host) : security_.peer;
    // All who have a key are one person: none of them proves the name.
    if (!security_.peer.empty()) options.handshake.own_identity = secure::kByCertificate;
    // While keys are changed, the first key may be another one than that of the living link.
    else if (has_key_of(*options.credentials, living))
      options.handshake.own_identity = living.identity;
  }
  TENDON_TRY(secure, SecureStream::make(std::move(stream), std::move(options)));
  return std::unique_ptr<ByteStream>(std::move(secure));
}

LinkRenewalOptions SecureDial::renewals_of(const secure::TlsSession* session,
                                           std::uint32_t lanes) const {
  if (session == nullptr) return {};
  auto options = detail::renewals_of(security_.credentials, secure::TlsHandshake::Role::client,
                                     session->identity, session->credential, session->proof, lanes);
  // A random number, not a secret.
  options.terms.earlier = static_cast<std::uint8_t>(std::hash<std::string>()(session->id));
  return options;
}

void SecureDial::use(const secure::TlsSession* session) {
  if (session == nullptr) return;
  session_id_ = session->id;
  lane_key_ = SecretBytes::copy_of(session->lane_key.bytes());
}

}  // namespace tendon::v0::detail
