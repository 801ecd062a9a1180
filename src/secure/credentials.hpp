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

/// What Credentials are made of.
struct CredentialParts {
  std::vector<SharedKey> keys;  ///< the first is dialled with, all are accepted
  CertificateChain chain;       ///< this end's own, then those that lead to its authority
  CryptoOwned<EVP_PKEY> certificate_key;
  CertificateChain authorities;           ///< who signs the certificates of peers
  std::shared_ptr<const KeyLog> key_log;  ///< null: nobody else learns a secret
  RotationLimits rotation{};
};

/// How one end of secure links proves itself, and whom it believes: keys, or certificates of given
/// authorities, or both. No authority of the system is believed.
///
/// Owns:    the keys and OpenSSL's configuration for handshakes.
/// Threads: immutable.
/// Errors:  invalid_argument, which says what is missing or does not belong together; those of the
///          files.
/// Blocks:  load() and look(): on the disk.
/// Cost:    about a millisecond.
class Credentials {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> make(CredentialParts parts);
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> load(
      const CredentialFiles& files, const RotationLimits& rotation = {});
  /// The same, with `keys`, if there are any, in place of those of a file. Then nothing is read
  /// again later.
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> load(const CredentialFiles& files,
                                                                       std::vector<SharedKey> keys);
  /// The same files, as they were when they were read last; `loaded` where they have not changed.
  [[nodiscard]] static std::shared_ptr<const Credentials> latest(
      const std::shared_ptr<const Credentials>& loaded);
  /// Reads the files again, if they have changed: then latest() returns what they have now.
  void look(CredentialSource::Clock::time_point now) const {
    if (source_ != nullptr) source_->look(now, rotation_.looks_every);
  }

  [[nodiscard]] const RotationLimits& rotation() const noexcept { return rotation_; }
  /// Null: this end has none.
  [[nodiscard]] const SharedKey* key_to_dial() const noexcept {
    return keys_.empty() ? nullptr : &keys_.front();
  }
  [[nodiscard]] const SharedKey* find_key(std::string_view label) const noexcept;
  /// Null: there is none.
  [[nodiscard]] const KeyLog* key_log() const noexcept { return key_log_.get(); }
  /// `forked` in a child of the process that loaded them: the keys are zeros there, and OpenSSL's
  /// locks are the parent's.
  [[nodiscard]] Result<void> check_process(std::string_view where) const;
  /// For SSL_new(), of either role.
  [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }

 private:
  Credentials() = default;
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> load(
      const CredentialFiles& files, std::vector<SharedKey> keys, const RotationLimits& rotation,
      std::shared_ptr<CredentialSource> source);
  [[nodiscard]] static Result<std::shared_ptr<const Credentials>> make(
      CredentialParts parts, std::shared_ptr<CredentialSource> source);
  [[nodiscard]] Result<void> take_certificates(const CredentialParts& parts);

  const std::uint32_t process_ = process_number();
  std::vector<SharedKey> keys_;
  std::shared_ptr<const KeyLog> key_log_;
  CryptoOwned<SSL_CTX> context_;
  RotationLimits rotation_;
  std::shared_ptr<CredentialSource> source_;  // null: they are from no file
};

}  // namespace tendon::v0::detail::secure
