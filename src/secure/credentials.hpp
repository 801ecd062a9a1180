// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/openssl.hpp"
#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail::secure {

inline constexpr std::size_t kSharedKeyBytes = 32;
inline constexpr std::size_t kMaxKeyLabelBytes = 64;

/// A key that the ends of a link have in common. Whoever holds it is `key:LABEL`.
struct SharedKey {
  std::string label;
  SecretBytes secret;  // kSharedKeyBytes
};

/// What Credentials are made of. Certificates and keys are PEM texts.
struct CredentialParts {
  std::vector<SharedKey> keys;  ///< the first is dialled with, all are accepted
  std::string certificates;     ///< this end's own, then those that lead to its authority
  SecretBytes certificate_key;
  std::string authorities;  ///< who signs the certificates of peers
};

/// How one end of secure links proves itself, and whom it believes: keys, or certificates of given
/// authorities, or both. No authority of the system is believed.
///
/// Owns:    the keys and OpenSSL's configuration for handshakes.
/// Threads: immutable.
/// Errors:  invalid_argument, which names the part: keys of another size, labels that are empty,
///          long or twice, PEM that OpenSSL cannot read, a certificate without its key, of another
///          key, or without authorities for the peers; neither keys nor a certificate.
/// Blocks:  never.
/// Cost:    make(): about a millisecond.
class Credentials {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> make(CredentialParts parts);

  /// Null: this end has none.
  [[nodiscard]] const SharedKey* key_to_dial() const noexcept {
    return keys_.empty() ? nullptr : &keys_.front();
  }
  [[nodiscard]] const SharedKey* find_key(std::string_view label) const noexcept;
  [[nodiscard]] bool has_certificate() const noexcept { return has_certificate_; }
  /// For SSL_new(), of either role. The callbacks that belong to a handshake are TlsHandshake's.
  [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }

 private:
  Credentials() = default;
  [[nodiscard]] Result<void> take_keys(std::vector<SharedKey> keys);
  [[nodiscard]] Result<void> take_certificates(const CredentialParts& parts);

  std::vector<SharedKey> keys_;
  SslContextPtr context_;
  bool has_certificate_ = false;
};

}  // namespace tendon::v0::detail::secure
