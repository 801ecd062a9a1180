// SPDX-License-Identifier: Apache-2.0
#include "secure/credentials.hpp"

#include <openssl/ssl.h>

#include <algorithm>

#include "secure/credential_file.hpp"
#include "secure/key_file.hpp"
#include "secure/tls_handshake.hpp"
#include "secure/tls_limits.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr std::string_view kWhere = "secure.credentials";

Error wrong(std::string what) {
  return Error{ErrorCode::invalid_argument, kWhere, std::move(what)};
}

CryptoOwned<SSL_CTX> make_context() {
  CryptoOwned<SSL_CTX> made(SSL_CTX_new_ex(crypto_library(), nullptr, TLS_method()));
  if (made == nullptr) return nullptr;
  SSL_CTX* context = made.get();
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1)
    return nullptr;
  // Without middlebox compatibility, a connection has no records beyond those of RFC 8446.
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(context, kMaxIssuersBetween);
  SSL_CTX_set_max_cert_list(context, static_cast<long>(kMaxCertificateBytes));
  TlsHandshake::prepare(context);
  return made;
}

// Nobody else may write the file, or read it if it holds a secret.
Result<SecretBytes> read_file(const std::string& path, FileReaders readers) {
  TENDON_TRY(file, CredentialFile::open(path));
  TENDON_CHECK(file.check_access(readers));
  return file.read();
}

}  // namespace

Result<std::shared_ptr<const Credentials>> Credentials::make(CredentialParts parts) {
  return make(std::move(parts), nullptr);
}

Result<std::shared_ptr<const Credentials>> Credentials::make(
    CredentialParts parts, std::shared_ptr<CredentialSource> source) {
  const std::shared_ptr<Credentials> made(new Credentials);
  if (parts.keys.empty() && parts.chain.empty())
    return wrong("secure links need a key, or a certificate with its key and an authority");
  const CryptoErrors errors;
  made->context_ = make_context();
  if (made->context_ == nullptr) return errors.failed(kWhere, "offer TLS 1.3 with AES-256-GCM");
  TENDON_CHECK(made->take_certificates(parts));
  made->keys_ = std::move(parts.keys);
  made->key_log_ = std::move(parts.key_log);
  made->rotation_ = parts.rotation;
  made->source_ = std::move(source);
  return std::shared_ptr<const Credentials>(made);
}

std::shared_ptr<const Credentials> Credentials::latest(
    const std::shared_ptr<const Credentials>& loaded) {
  auto latest = loaded->source_ == nullptr ? nullptr : loaded->source_->latest();
  return latest == nullptr ? loaded : latest;
}

Result<std::shared_ptr<const Credentials>> Credentials::load(const CredentialFiles& files,
                                                             const RotationLimits& rotation) {
  return load(files, {}, rotation,
              std::make_shared<CredentialSource>(files, [rotation](const CredentialFiles& again) {
                return load(again, rotation);
              }));
}

Result<std::shared_ptr<const Credentials>> Credentials::load(const CredentialFiles& files,
                                                             std::vector<SharedKey> keys) {
  if (keys.empty()) return load(files);
  return load(files, std::move(keys), {}, nullptr);
}

Result<std::shared_ptr<const Credentials>> Credentials::load(
    const CredentialFiles& files, std::vector<SharedKey> keys, const RotationLimits& rotation,
    std::shared_ptr<CredentialSource> source) {
  CredentialParts parts;
  parts.keys = std::move(keys);
  parts.rotation = rotation;
  if (!files.key.empty()) {
    if (!parts.keys.empty()) return wrong("keys are given twice: leave '" + files.key + "' out");
    TENDON_TRY(loaded, load_keys(files.key));
    parts.keys = std::move(loaded);
  }
  if (!files.cert.empty()) {
    TENDON_TRY(text, read_file(files.cert, FileReaders::by_umask));
    TENDON_TRY(chain, parse_certificates(text.bytes(), files.cert));
    parts.chain = std::move(chain);
  }
  if (!files.cert_key.empty()) {
    TENDON_TRY(text, read_file(files.cert_key, FileReaders::owner_only));
    TENDON_TRY(key, parse_private_key(text.bytes(), files.cert_key));
    parts.certificate_key = std::move(key);
  }
  if (!files.ca.empty()) {
    TENDON_TRY(text, read_file(files.ca, FileReaders::by_umask));
    TENDON_TRY(authorities, parse_certificates(text.bytes(), files.ca));
    parts.authorities = std::move(authorities);
  }
  if (!files.keylog.empty()) {
    TENDON_TRY(opened, KeyLog::open(files.keylog));
    parts.key_log = std::move(opened);
  }
  return make(std::move(parts), std::move(source));
}

const SharedKey* Credentials::find_key(std::string_view label) const noexcept {
  const auto found = std::ranges::find(keys_, label, &SharedKey::label);
  return found == keys_.end() ? nullptr : &*found;
}

Result<void> Credentials::check_process(std::string_view where) const {
  if (process_ == process_number()) return {};
  return Error{ErrorCode::forked, where,
               "the credentials were loaded before this process was forked: load them again"};
}

Result<void> Credentials::take_certificates(const CredentialParts& parts) {
  if (parts.chain.empty()) {
    if (parts.certificate_key != nullptr) return wrong("a certificate's key has no certificate");
    if (!parts.authorities.empty())
      return wrong("a CA is given for the certificates of peers, and no certificate to show them");
    return {};
  }
  if (parts.certificate_key == nullptr) return wrong("a certificate has no key");
  if (parts.authorities.empty())
    return wrong("a certificate is given, and no CA that signs those of the peers");

  const CryptoErrors errors;
  SSL_CTX* context = context_.get();
  if (SSL_CTX_use_certificate(context, parts.chain.front().get()) != 1)
    return wrong("the certificate cannot be used: " + errors.reason());
  for (std::size_t n = 1; n < parts.chain.size(); ++n)
    if (SSL_CTX_add1_chain_cert(context, parts.chain[n].get()) != 1)
      return wrong("certificate " + std::to_string(n + 1) +
                   " of the chain cannot be used: " + errors.reason());
  if (SSL_CTX_use_PrivateKey(context, parts.certificate_key.get()) != 1)
    return wrong("the key is not that of the certificate: " + errors.reason());
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const auto& authority : parts.authorities)
    if (X509_STORE_add_cert(store, authority.get()) != 1)
      return wrong("the certificate of a CA cannot be used: " + errors.reason());
  return {};
}

}  // namespace tendon::v0::detail::secure
