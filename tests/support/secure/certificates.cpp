// SPDX-License-Identifier: Apache-2.0
#include "support/secure/certificates.hpp"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <stdexcept>

namespace tendon::test {
namespace {

using namespace tendon::detail;

void need(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

void extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  need(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, value.c_str());
  X509_EXTENSION_free(extension);
}

}  // namespace

Certificate Certificate::make(const CertificateText& text, const Certificate* issuer) {
  static std::atomic<long> serial{1};
  Certificate made;
  made.key_.reset(EVP_PKEY_Q_keygen(crypto_library(), nullptr, "EC", "P-256"));
  made.certificate_.reset(X509_new_ex(crypto_library(), nullptr));
  X509* x = made.certificate_.get();
  need(made.key_ != nullptr && x != nullptr, "a key and a certificate");
  X509* const signer = issuer == nullptr ? x : issuer->certificate_.get();
  need(X509_set_version(x, X509_VERSION_3) == 1, "the version");
  ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
  X509_gmtime_adj(X509_getm_notBefore(x), text.valid_from_s);
  X509_gmtime_adj(X509_getm_notAfter(x), text.valid_to_s);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(text.subject.c_str()), -1, -1,
                             0);
  need(X509_set_issuer_name(x, X509_get_subject_name(signer)) == 1, "the issuer");
  need(X509_set_pubkey(x, made.key_.get()) == 1, "the public key");
  extend(x, signer, NID_basic_constraints, text.is_authority ? "critical, CA:TRUE" : "CA:FALSE");
  extend(x, signer, NID_key_usage, text.is_authority ? "keyCertSign" : "digitalSignature");
  if (!text.usage.empty()) extend(x, signer, NID_ext_key_usage, text.usage);
  if (!text.names.empty()) extend(x, signer, NID_subject_alt_name, text.names);
  EVP_PKEY* const key = issuer == nullptr ? made.key_.get() : issuer->key_.get();
  need(X509_sign(x, key, EVP_sha256()) > 0, "the signature");
  return made;
}

Certificate Certificate::root(const CertificateText& text) { return make(text, nullptr); }

Certificate Certificate::authority(const std::string& name) {
  return make({.subject = name, .names = "", .usage = "", .is_authority = true}, nullptr);
}

Certificate Certificate::sign(const CertificateText& text) const { return make(text, this); }

Certificate Certificate::sign_authority(const std::string& name) const {
  return make({.subject = name, .names = "", .usage = "", .is_authority = true}, this);
}

CryptoOwned<X509> Certificate::certificate() const {
  CryptoOwned<X509> copy(X509_dup(certificate_.get()));
  need(copy != nullptr, "a copy");
  return copy;
}

CryptoOwned<EVP_PKEY> Certificate::key() const {
  CryptoOwned<EVP_PKEY> copy(EVP_PKEY_dup(key_.get()));
  need(copy != nullptr, "a copy");
  return copy;
}

}  // namespace tendon::test
