// SPDX-License-Identifier: Apache-2.0
#include "secure/credentials.hpp"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>

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

// The same files, whatever the working directory becomes before they are read again.
Result<CredentialFiles> absolute(CredentialFiles files) {
  for (std::string* file : {&files.key, &files.cert, &files.cert_key, &files.ca, &files.keylog}) {
    if (file->empty()) continue;
    std::error_code failure;
    const auto whole = std::filesystem::absolute(*file, failure);
    if (failure) return system_error(kWhere, "getcwd for '" + *file + "'", failure.value());
    *file = whole.string();
  }
  return files;
}

std::string quoted(const std::string& file) { return file.empty() ? "" : " '" + file + "'"; }

// A certificate, its key and the CA are given together, or not at all.
Result<void> check_complete(const CredentialParts& parts, const CredentialFiles& files) {
  struct Part {
    std::string_view name;
    std::string_view flag_and_variable;
    const std::string& file;
    bool is_given;
  };
  const std::array<Part, 3> all{{{"cert", "--cert, TENDON_CERT", files.cert, !parts.chain.empty()},
                                 {"cert_key", "--cert-key, TENDON_CERT_KEY", files.cert_key,
                                  parts.certificate_key != nullptr},
                                 {"ca", "--ca, TENDON_CA", files.ca, !parts.authorities.empty()}}};
  std::string given;
  std::string missing;
  for (const auto& [name, flag_and_variable, file, is_given] : all) {
    std::string& list = is_given ? given : missing;
    if (!list.empty()) list += " and ";
    list += name;
    list += is_given ? quoted(file) : " (" + std::string(flag_and_variable) + ")";
  }
  if (given.empty() || missing.empty()) return {};
  const bool is_one = std::ranges::count(all, true, &Part::is_given) == 1;
  return wrong(given + (is_one ? " is" : " are") + " given without " + missing +
               ": name a certificate, its key and the CA of the peers, or none of the three");
}

}  // namespace

Result<std::shared_ptr<const Credentials>> Credentials::make(CredentialParts parts) {
  TENDON_TRY(made, make(std::move(parts), {}));
  return std::shared_ptr<const Credentials>(std::move(made));
}

Result<std::shared_ptr<Credentials>> Credentials::make(CredentialParts parts,
                                                       const CredentialFiles& files) {
  std::shared_ptr<Credentials> made(new Credentials);
  TENDON_CHECK(check_complete(parts, files));
  if (parts.keys.empty() && parts.chain.empty()) {
    return wrong(
        "secure links need a key (--key, TENDON_KEY), or a certificate with its key and the CA of "
        "the peers (cert, cert_key and ca)");
  }
  const CryptoErrors errors;
  made->context_ = make_context();
  if (made->context_ == nullptr) return errors.failed(kWhere, "offer TLS 1.3 with AES-256-GCM");
  TENDON_CHECK(made->take_certificates(parts, files));
  made->keys_ = std::move(parts.keys);
  made->key_log_ = std::move(parts.key_log);
  made->rotation_ = parts.rotation;
  return made;
}

std::shared_ptr<const Credentials> Credentials::latest(
    const std::shared_ptr<const Credentials>& loaded) {
  auto latest = loaded->source_ == nullptr ? nullptr : loaded->source_->latest();
  return latest == nullptr ? loaded : latest;
}

Result<std::shared_ptr<const Credentials>> Credentials::load(const CredentialFiles& files,
                                                             const RotationLimits& rotation) {
  TENDON_TRY(whole, absolute(files));
  return load(whole, {}, rotation,
              std::make_shared<CredentialSource>(whole, [rotation](const CredentialFiles& again) {
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
    TENDON_TRY(chain, parse_file(files.cert, FileReaders::everybody, parse_certificates));
    parts.chain = std::move(chain);
  }
  if (!files.cert_key.empty()) {
    TENDON_TRY(key, parse_file(files.cert_key, FileReaders::owner_only, parse_private_key));
    parts.certificate_key = std::move(key);
  }
  if (!files.ca.empty()) {
    TENDON_TRY(authorities, parse_file(files.ca, FileReaders::everybody, parse_certificates));
    parts.authorities = std::move(authorities);
  }
  TENDON_TRY(made, make(std::move(parts), files));
  if (!files.keylog.empty()) {  // last: none is made for credentials that are refused
    TENDON_TRY(opened, KeyLog::open(files.keylog));
    made->key_log_ = std::move(opened);
  }
  made->source_ = std::move(source);
  return std::shared_ptr<const Credentials>(std::move(made));
}

const SharedKey* Credentials::find_key(std::string_view label) const noexcept {
  const auto found = std::ranges::find(keys_, label, &SharedKey::label);
  return found == keys_.end() ? nullptr : &*found;
}

bool Credentials::has_certificate() const noexcept {
  return SSL_CTX_get0_certificate(context_.get()) != nullptr;
}

Result<void> Credentials::check_process(std::string_view where) const {
  if (process_ == process_number()) return {};
  return Error{ErrorCode::forked, where,
               "the credentials were loaded before this process was forked: load them again"};
}

Result<void> Credentials::take_certificates(const CredentialParts& parts,
                                            const CredentialFiles& files) {
  if (parts.chain.empty()) return {};
  const CryptoErrors errors;
  SSL_CTX* context = context_.get();
  if (SSL_CTX_use_certificate(context, parts.chain.front().get()) != 1)
    return wrong("the certificate" + quoted(files.cert) + " cannot be used: " + errors.reason());
  for (std::size_t n = 1; n < parts.chain.size(); ++n)
    if (SSL_CTX_add1_chain_cert(context, parts.chain[n].get()) != 1)
      return wrong("certificate " + std::to_string(n + 1) + " of the chain" + quoted(files.cert) +
                   " cannot be used: " + errors.reason());
  if (SSL_CTX_use_PrivateKey(context, parts.certificate_key.get()) != 1) {
    return wrong("the key" + quoted(files.cert_key) +
                 " (--cert-key, TENDON_CERT_KEY) is not that "
                 "of the certificate" +
                 quoted(files.cert) + " (--cert, TENDON_CERT): " + errors.reason());
  }
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const auto& authority : parts.authorities)
    if (X509_STORE_add_cert(store, authority.get()) != 1)
      return wrong("the certificate of a CA" + quoted(files.ca) +
                   " cannot be used: " + errors.reason());
  return {};
}

}  // namespace tendon::v0::detail::secure
