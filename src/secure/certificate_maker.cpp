// SPDX-License-Identifier: Apache-2.0
#include "secure/certificate_maker.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "core/text.hpp"
#include "secure/shared_key.hpp"
#include "secure/utc_text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.certificate";
constexpr std::size_t kMaxDnsNameBytes = 253;
constexpr std::size_t kMaxDnsLabelBytes = 63;

/// Letters, digits and '-' with dots between them. So there is no wildcard, and nothing with a
/// meaning in the texts from which libcrypto reads extensions.
bool is_dns_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxDnsNameBytes) return false;
  while (true) {
    const std::string_view label = name.substr(0, name.find('.'));
    if (label.empty() || label.size() > kMaxDnsLabelBytes || label.front() == '-' ||
        label.back() == '-' || !std::ranges::all_of(label, [](char letter) {
          return letter == '-' || (letter >= '0' && letter <= '9') ||
                 (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
        }))
      return false;
    if (label.size() == name.size()) return true;
    name.remove_prefix(label.size() + 1);
  }
}

bool is_address(const std::string& text) {
  in6_addr room{};
  return inet_pton(AF_INET, text.c_str(), &room) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &room) == 1;
}

Error illegal(std::string_view kind, const std::string& value, const std::string& legal) {
  return Error{ErrorCode::invalid_argument, kWhere,
               std::string(kind) + " '" + escaped(value, kMaxDnsNameBytes) +
                   "' cannot be in a certificate; " + legal};
}

/// A certificate under construction. A failed part is reported at the end.
///
/// Owns:    the certificate until it is signed.
/// Threads: one.
/// Errors:  internal, from sign().
/// Blocks:  never.
/// Cost:    one signature.
class Draft {
 public:
  Draft() : certificate_(X509_new_ex(crypto_library(), nullptr)) {
    // RFC 5280: at most 20 bytes, positive.
    std::array<unsigned char, 16> serial{};
    note(RAND_bytes_ex(crypto_library(), serial.data(), serial.size(), 0) == 1);
    serial.front() = static_cast<unsigned char>((serial.front() & 0x3f) | 0x40);
    const std::unique_ptr<BIGNUM, void (*)(BIGNUM*)> number(
        BN_bin2bn(serial.data(), serial.size(), nullptr), BN_free);
    note(number != nullptr && certificate_ != nullptr &&
         X509_set_version(certificate_.get(), X509_VERSION_3) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate_.get())) != nullptr);
  }

  void set_subject(const std::string& common_name) {
    const auto* text = reinterpret_cast<const unsigned char*>(common_name.c_str());
    note(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate_.get()), "CN", MBSTRING_ASC,
                                    text, -1, -1, 0) == 1);
  }
  void set_validity(const Validity& validity) {
    const auto number = [](std::chrono::sys_seconds time) {
      return static_cast<std::time_t>(time.time_since_epoch().count());
    };
    note(ASN1_TIME_set(X509_getm_notBefore(certificate_.get()), number(validity.begins)) !=
             nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate_.get()), number(validity.ends)) != nullptr);
  }
  void set_key(EVP_PKEY* key) { note(X509_set_pubkey(certificate_.get(), key) == 1); }
  void set_issuer(const X509* issuer) {
    issuer_ = issuer;
    note(X509_set_issuer_name(certificate_.get(), X509_get_subject_name(issuer)) == 1);
  }
  /// Adds an extension; libcrypto reads `value` as in its configuration files.
  void add(int extension, const std::string& value) {
    X509V3_CTX context{};
    X509V3_set_ctx(&context, const_cast<X509*>(issuer_), certificate_.get(), nullptr, nullptr, 0);
    const CryptoOwned<X509_EXTENSION> made(
        X509V3_EXT_conf_nid(nullptr, &context, extension, value.c_str()));
    note(made != nullptr && X509_add_ext(certificate_.get(), made.get(), -1) == 1);
  }
  [[nodiscard]] X509* get() const { return certificate_.get(); }

  [[nodiscard]] Result<CryptoOwned<X509>> sign(EVP_PKEY* key) && {
    note(X509_sign(certificate_.get(), key, EVP_sha256()) > 0);
    if (!is_whole_) return errors_.failed(kWhere, "make a certificate");
    return std::move(certificate_);
  }

 private:
  void note(bool succeeded) { is_whole_ = is_whole_ && succeeded; }

  CryptoErrors errors_;
  CryptoOwned<X509> certificate_;
  const X509* issuer_ = nullptr;
  bool is_whole_ = true;
};

Result<CryptoOwned<EVP_PKEY>> make_private_key() {
  const CryptoErrors errors;
  CryptoOwned<EVP_PKEY> key(EVP_PKEY_Q_keygen(crypto_library(), nullptr, "EC", "P-256"));
  if (key == nullptr) return errors.failed(kWhere, "make a key of P-256");
  return key;
}

/// A random name, because a peer finds an issuer by its name, so two authorities need different
/// ones.
Result<std::string> authority_name() {
  const CryptoErrors errors;
  std::array<std::byte, 8> random{};
  if (RAND_bytes_ex(crypto_library(), reinterpret_cast<unsigned char*>(random.data()),
                    random.size(), 0) != 1)
    return errors.failed(kWhere, "make random bytes");
  return "tendon CA " + to_hex(random);
}

std::string alternative_names(const CertificateNames& names) {
  std::string all = "URI:tendon:" + names.name;
  for (const std::string& dns : names.dns) all += ",DNS:" + dns;
  for (const std::string& address : names.addresses) all += ",IP:" + address;
  return all;
}

}  // namespace

Result<void> check_names(const CertificateNames& names) {
  if (!is_label(names.name)) return illegal("the name", names.name, legal_label());
  for (const std::string& dns : names.dns) {
    if (!is_dns_name(dns)) {
      return illegal("the DNS name", dns,
                     "legal are names as a.example, of at most " +
                         std::to_string(kMaxDnsNameBytes) + " bytes, without wildcards");
    }
  }
  for (const std::string& address : names.addresses)
    if (!is_address(address))
      return illegal("the address", address, "legal are 10.0.0.5 and fd00::5");
  return {};
}

Result<Credential> make_authority(const Validity& validity) {
  TENDON_TRY(key, make_private_key());
  TENDON_TRY(name, authority_name());
  Draft draft;
  draft.set_subject(name);
  draft.set_validity(validity);
  draft.set_key(key.get());
  draft.set_issuer(draft.get());
  draft.add(NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  draft.add(NID_key_usage, "critical,keyCertSign,cRLSign");
  draft.add(NID_subject_key_identifier, "hash");
  draft.add(NID_authority_key_identifier, "keyid:always");
  TENDON_TRY(certificate, std::move(draft).sign(key.get()));
  return Credential{std::move(certificate), std::move(key)};
}

Result<Credential> make_certificate(const Credential& authority, const CertificateNames& names,
                                    const Validity& validity) {
  TENDON_CHECK(check_names(names));
  const auto last = validity_of(authority.certificate.get()).ends;
  if (validity.ends > last) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 "a certificate until " + utc_text(validity.ends) +
                     " would outlive its CA, until " + utc_text(last) +
                     ": ask for fewer days, or make a new CA"};
  }
  TENDON_TRY(key, make_private_key());
  Draft draft;
  draft.set_subject(names.name);
  draft.set_validity(validity);
  draft.set_key(key.get());
  draft.set_issuer(authority.certificate.get());
  draft.add(NID_basic_constraints, "critical,CA:FALSE");
  draft.add(NID_key_usage, "critical,digitalSignature");
  draft.add(NID_ext_key_usage, "clientAuth,serverAuth");
  draft.add(NID_subject_key_identifier, "hash");
  draft.add(NID_authority_key_identifier, "keyid:always");
  draft.add(NID_subject_alt_name, alternative_names(names));
  TENDON_TRY(certificate, std::move(draft).sign(authority.key.get()));
  return Credential{std::move(certificate), std::move(key)};
}

}  // namespace tendon::v0::detail
