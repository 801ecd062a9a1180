// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/secure/credential_files.hpp>
#include <vector>

#include "core/fork_guard.hpp"
#include "secure/certificate.hpp"
#include "secure/credential_source.hpp"
#include "secure/crypto_library.hpp"
#include "secure/key_log.hpp"
#include "secure/rotation_limits.hpp"
#include "secure/shared_key.hpp"

namespace tendon::v0::detail::secure {

/// The parts from which Credentials are made.
struct CredentialParts {
  std::vector<SharedKey> keys;  ///< the first is for dialling, all are accepted
  CertificateChain chain;       ///< this end's own, then those that lead to its authority
  CryptoOwned<EVP_PKEY> certificate_key;
  CertificateChain authorities;           ///< the signers of peers' certificates
  std::shared_ptr<const KeyLog> key_log;  ///< null: no secret is logged
  RotationLimits rotation{};
};

/// How one end of secure links proves its identity, and which proofs it accepts: keys, certificates
/// of chosen authorities, or both. The system's authorities are not trusted.
///
/// Owns:    the keys and OpenSSL's configuration for handshakes.
/// Threads: immutable.
/// Errors:  invalid_argument, which names the missing or mismatched part; those of the files.
/// Blocks:  load() and look(): on the disk.
/// Cost:    about a millisecond.
class Credentials {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> make(CredentialParts parts);
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> load(
      const CredentialFiles& files, const RotationLimits& rotation = {});
  /// The same, with `keys`, if there are any, in place of those of a file. Such credentials are
  /// never read again.
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> load(const CredentialFiles& files,
                                                                       std::vector<SharedKey> keys);
  /// The credentials of the latest read of the same files; `loaded` if they have not changed.
  [[nodiscard]] static std::shared_ptr<const Credentials> latest(
      const std::shared_ptr<const Credentials>& loaded);
  /// Reads changed files again; latest() then returns the new credentials.
  void look(CredentialSource::Clock::time_point now) const {
    if (source_ != nullptr) source_->look(now, rotation_.looks_every);
  }

  [[nodiscard]] const RotationLimits& rotation() const noexcept { return rotation_; }
  /// Null: this end has no key.
  [[nodiscard]] const SharedKey* key_to_dial() const noexcept {
    return keys_.empty() ? nullptr : &keys_.front();
  }
  [[nodiscard]] const SharedKey* find_key(std::string_view label) const noexcept;
  /// Then it also has the key of the certificate, and authorities.
  [[nodiscard]] bool has_certificate() const noexcept;
  /// Null: there is none.
  [[nodiscard]] const KeyLog* key_log() const noexcept { return key_log_.get(); }
  /// `forked` in a child of the process that loaded them, where the keys are zeros and OpenSSL's
  /// locks belong to the parent.
  [[nodiscard]] Result<void> check_process(std::string_view where) const;
  /// For SSL_new(), in either role.
  [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }

 private:
  Credentials() = default;
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> load(
      const CredentialFiles& files, std::vector<SharedKey> keys, const RotationLimits& rotation,
      std::shared_ptr<CredentialSource> source);
  /// `files`: where the parts are from, for errors.
  [[nodiscard]] static Result<std::shared_ptr<Credentials>> make(CredentialParts parts,
                                                                 const CredentialFiles& files);
  [[nodiscard]] Result<void> take_certificates(const CredentialParts& parts,
                                               const CredentialFiles& files);

  const std::uint32_t process_ = process_number();
  std::vector<SharedKey> keys_;
  std::shared_ptr<const KeyLog> key_log_;
  CryptoOwned<SSL_CTX> context_;
  RotationLimits rotation_;
  std::shared_ptr<CredentialSource> source_;  // null: they are not from files
};

}  // namespace tendon::v0::detail::secure
