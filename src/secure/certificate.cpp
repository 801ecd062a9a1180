// SPDX-License-Identifier: Apache-2.0
#include "secure/certificate.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <memory>

#include "core/text.hpp"
#include "secure/shared_key.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.certificate";

CryptoOwned<BIO> reader_of(Bytes text) {
  // BIO_new_mem_buf() takes no null pointer, which an empty text may have.
  const void* const begin = text.empty() ? "" : static_cast<const void*>(text.data());
  return CryptoOwned<BIO>(BIO_new_mem_buf(begin, static_cast<int>(text.size())));
}

/// Refuses a password, for which libcrypto would ask at the terminal.
int no_password(char* /*room*/, int /*size*/, int /*writing*/, void* /*context*/) { return -1; }

Error unreadable(const std::filesystem::path& file, std::string_view why) {
  return Error{ErrorCode::corrupt_data, kWhere, "'" + file.string() + "' " + std::string(why)};
}

std::chrono::sys_seconds time_of(const ASN1_TIME* time) {
  std::tm parts{};
  // An unreadable time counts as long past.
  if (ASN1_TIME_to_tm(time, &parts) != 1) return std::chrono::sys_seconds::min();
  return std::chrono::sys_seconds(std::chrono::seconds(timegm(&parts)));
}

std::string_view text_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

std::string address_text(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int size_bytes = ASN1_STRING_length(address);
  const int family = size_bytes == 4 ? AF_INET : AF_INET6;
  if (size_bytes != 4 && size_bytes != 16) return {};
  inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size());
  return text.data();
}

/// The text of a name; empty for one of another kind.
std::string name_text(const GENERAL_NAME* name) {
  if (name->type == GEN_IPADD) {
    const std::string address = address_text(name->d.iPAddress);
    return address.empty() ? address : "ip:" + address;
  }
  if (name->type != GEN_URI && name->type != GEN_DNS) return {};
  const std::string_view text = text_of(name->d.ia5);
  if (text.empty() || !is_clean(text)) return {};
  // A URI must not look like an identity of another kind.
  constexpr std::array<std::string_view, 4> kTaken{kKeyPrefix, "session:", "dns:", "ip:"};
  const auto begins = [&](std::string_view prefix) { return text.starts_with(prefix); };
  if (name->type == GEN_URI && std::ranges::any_of(kTaken, begins)) return {};
  return (name->type == GEN_DNS ? "dns:" : "") + std::string(text);
}

}  // namespace

Result<CertificateChain> parse_certificates(Bytes text, const std::filesystem::path& file) {
  const CryptoErrors errors;
  const CryptoOwned<BIO> reader = reader_of(text);
  CertificateChain chain;
  while (true) {
    CryptoOwned<X509> certificate(X509_new_ex(crypto_library(), nullptr));
    X509* place = certificate.get();
    if (place == nullptr || reader == nullptr) return errors.failed(kWhere, "make a certificate");
    if (PEM_read_bio_X509(reader.get(), &place, no_password, nullptr) == nullptr) {
      // libcrypto has freed it, unless it found no further certificate.
      if (place == nullptr) (void)certificate.release();
      break;
    }
    chain.push_back(std::move(certificate));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (chain.empty() || !at_end)
    return unreadable(file, "has no certificate in PEM that is whole: is it the right file?");
  return chain;
}

Result<CryptoOwned<EVP_PKEY>> parse_private_key(Bytes text, const std::filesystem::path& file) {
  const CryptoErrors errors;
  const CryptoOwned<BIO> reader = reader_of(text);
  CryptoOwned<EVP_PKEY> key(PEM_read_bio_PrivateKey_ex(reader.get(), nullptr, no_password, nullptr,
                                                       crypto_library(), nullptr));
  if (key != nullptr) return key;
  return unreadable(file,
                    "has no private key in PEM that is whole and has no password; "
                    "`openssl pkey -in FILE` says more, and writes one without");
}

Validity validity_of(const X509* certificate) {
  return {time_of(X509_get0_notBefore(certificate)), time_of(X509_get0_notAfter(certificate))};
}

bool is_authority(X509* certificate) { return X509_check_ca(certificate) == 1; }

std::vector<std::string> names_in(const X509* certificate) {
  const CryptoErrors errors;
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  std::vector<std::string> texts;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    std::string text = name_text(sk_GENERAL_NAME_value(names.get(), i));
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace tendon::v0::detail
