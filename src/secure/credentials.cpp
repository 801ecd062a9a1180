// SPDX-License-Identifier: Apache-2.0
#include "secure/credentials.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <optional>

#include "secure/tls_handshake.hpp"

namespace tendon::v0::detail::secure {
namespace {

// A chain of an end, an intermediate authority and a root: more is not asked for by anybody.
constexpr int kMaxIssuersBetween = 2;
// All certificates of the peer together, as they are sent.
constexpr long kMaxCertificateBytes = 16L << 10;

Error wrong(std::string what) {
  return Error{ErrorCode::invalid_argument, "secure.credentials", std::move(what)};
}

BioPtr text_of(Bytes text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Nothing: the text ends here, or cannot be read, which the queue of errors says.
X509Ptr next_certificate(BIO* text) {
  X509Ptr made(X509_new_ex(library_context(), nullptr));
  X509* certificate = made.get();
  if (certificate == nullptr || PEM_read_bio_X509(text, &certificate, nullptr, nullptr) == nullptr)
    return nullptr;
  return made;
}

// The certificates of `text`, of which there is at least one.
Result<std::vector<X509Ptr>> read_certificates(std::string_view text, std::string_view what) {
  ERR_clear_error();
  const BioPtr source = text_of(as_bytes(text));
  std::vector<X509Ptr> read;
  while (X509Ptr next = next_certificate(source.get())) read.push_back(std::move(next));
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = take_openssl_errors();
  if (read.empty())
    return wrong(std::string(what) + " has no certificate in PEM form (" + why + ")");
  if (!at_end)
    return wrong("certificate " + std::to_string(read.size() + 1) + " of " + std::string(what) +
                 " cannot be read: " + why);
  return read;
}

// Nobody is asked for a passphrase on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

SslContextPtr make_context() {
  SslContextPtr made(SSL_CTX_new_ex(library_context(), nullptr, TLS_method()));
  if (made == nullptr) return nullptr;
  SSL_CTX* context = made.get();
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1)
    return nullptr;
  // Without compatibility to middleboxes the records of a connection are those of RFC 8446 alone.
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(context, kMaxIssuersBetween);
  SSL_CTX_set_max_cert_list(context, kMaxCertificateBytes);
  TlsHandshake::prepare(context);
  return made;
}

}  // namespace

Result<std::shared_ptr<const Credentials>> Credentials::make(CredentialParts parts) {
  const std::shared_ptr<Credentials> made(new Credentials);
  if (parts.keys.empty() && parts.certificates.empty())
    return wrong("secure links need a key, or a certificate with its key and an authority");
  made->context_ = make_context();
  if (made->context_ == nullptr)
    return Error{ErrorCode::system, "secure.credentials",
                 "OpenSSL offers no TLS 1.3 with AES-256-GCM: " + take_openssl_errors()};
  TENDON_CHECK(made->take_certificates(parts));
  TENDON_CHECK(made->take_keys(std::move(parts.keys)));
  return std::shared_ptr<const Credentials>(made);
}

const SharedKey* Credentials::find_key(std::string_view label) const noexcept {
  const auto found = std::ranges::find(keys_, label, &SharedKey::label);
  return found == keys_.end() ? nullptr : &*found;
}

Result<void> Credentials::take_keys(std::vector<SharedKey> keys) {
  for (SharedKey& key : keys) {
    if (key.label.empty() || key.label.size() > kMaxKeyLabelBytes)
      return wrong("the label '" + key.label + "' of a key has " +
                   std::to_string(key.label.size()) + " bytes; legal are 1 to " +
                   std::to_string(kMaxKeyLabelBytes));
    if (key.secret.size() != kSharedKeyBytes)
      return wrong("key '" + key.label + "' has " + std::to_string(key.secret.size()) +
                   " bytes; it must have " + std::to_string(kSharedKeyBytes));
    if (find_key(key.label) != nullptr) return wrong("two keys have the label '" + key.label + "'");
    keys_.push_back(std::move(key));
  }
  return {};
}

Result<void> Credentials::take_certificates(const CredentialParts& parts) {
  if (parts.certificates.empty()) {
    if (!parts.certificate_key.empty()) return wrong("a certificate's key without a certificate");
    if (!parts.authorities.empty())
      return wrong("authorities for the certificates of peers, and this end has none to show them");
    return {};
  }
  if (parts.certificate_key.empty()) return wrong("a certificate without its key");
  if (parts.authorities.empty())
    return wrong("a certificate, and no authority that signs those of the peers");

  TENDON_TRY(own, read_certificates(parts.certificates, "the certificate file"));
  SSL_CTX* context = context_.get();
  if (SSL_CTX_use_certificate(context, own.front().get()) != 1)
    return wrong("the certificate cannot be used: " + take_openssl_errors());
  for (std::size_t n = 1; n < own.size(); ++n)
    if (SSL_CTX_add1_chain_cert(context, own[n].get()) != 1)
      return wrong("certificate " + std::to_string(n + 1) +
                   " of the certificate file cannot be used: " + take_openssl_errors());

  const BioPtr key_text = text_of(parts.certificate_key.bytes());
  const EvpKeyPtr key(PEM_read_bio_PrivateKey_ex(key_text.get(), nullptr, no_passphrase, nullptr,
                                                 library_context(), nullptr));
  if (key == nullptr)
    return wrong("the certificate's key cannot be read (PEM without a passphrase is): " +
                 take_openssl_errors());
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    return wrong("the key is not that of the certificate: " + take_openssl_errors());

  TENDON_TRY(authorities, read_certificates(parts.authorities, "the file of authorities"));
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const X509Ptr& authority : authorities)
    if (X509_STORE_add_cert(store, authority.get()) != 1)
      return wrong("an authority cannot be used: " + take_openssl_errors());
  has_certificate_ = true;
  return {};
}

}  // namespace tendon::v0::detail::secure
