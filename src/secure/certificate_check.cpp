// SPDX-License-Identifier: Apache-2.0
#include "secure/certificate_check.hpp"

#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "secure/tls_limits.hpp"
#include "secure/utc_text.hpp"

namespace tendon::v0::detail {
namespace {

using std::chrono::sys_seconds;

constexpr std::string_view kWhere = "secure.check";

Error refused(std::string why) {
  return Error{ErrorCode::permission_denied, kWhere, "a peer refuses it: " + std::move(why)};
}

void check_dates(const X509* certificate, sys_seconds now, std::vector<Error>& faults) {
  const Validity validity = validity_of(certificate);
  if (now > validity.ends) {
    faults.push_back(refused("it has expired, at " + utc_text(validity.ends) + ", and it is now " +
                             utc_text(now) + "; make a new one"));
  }
  if (now < validity.begins) {
    faults.push_back(refused("it is not yet valid, but from " + utc_text(validity.begins) +
                             " on, and it is now " + utc_text(now) +
                             "; look at the clocks of both hosts"));
  }
}

/// An end of a connection, as a certificate and as libcrypto name it.
struct Purpose {
  std::string_view name;
  std::uint32_t usage;
  int purpose;
};
constexpr std::array kPurposes = {Purpose{"clientAuth", XKU_SSL_CLIENT, X509_PURPOSE_SSL_CLIENT},
                                  Purpose{"serverAuth", XKU_SSL_SERVER, X509_PURPOSE_SSL_SERVER}};

/// X509_V_OK, or why a chain does not lead to one of `authorities`. Dates are not checked.
int verify(const CertificateChain& chain, std::span<X509* const> authorities, int purpose) {
  const CryptoErrors errors;
  const CryptoOwned<X509_STORE> store(X509_STORE_new());
  const CryptoOwned<STACK_OF(X509)> between(sk_X509_new_null());
  const CryptoOwned<X509_STORE_CTX> context(X509_STORE_CTX_new_ex(crypto_library(), nullptr));
  bool is_made = store != nullptr && between != nullptr && context != nullptr;
  for (X509* authority : authorities)
    is_made = is_made && X509_STORE_add_cert(store.get(), authority) == 1;
  for (std::size_t i = 1; i < chain.size(); ++i)
    is_made = is_made && sk_X509_push(between.get(), chain[i].get()) > 0;
  if (!is_made ||
      X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), between.get()) != 1)
    return X509_V_ERR_OUT_OF_MEM;
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  X509_STORE_CTX_set_depth(context.get(), kMaxIssuersBetween);
  if (X509_verify_cert(context.get()) == 1) return X509_V_OK;
  return X509_STORE_CTX_get_error(context.get());
}

/// 0 for the best identity.
int rank_of(const std::string& name) {
  return name.starts_with("ip:") ? 2 : name.starts_with("dns:") ? 1 : 0;
}

}  // namespace

std::vector<std::string> identities_in(const X509* certificate) {
  std::vector<std::string> names = names_in(certificate);
  std::ranges::stable_sort(names, {}, rank_of);
  if (!names.empty() && names.front().starts_with("ip:")) names.clear();
  return names;
}

std::string why_untrusted(int error) {
  switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "it is of another CA than the one that was given";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return "it is signed by itself, and by no CA that was given";
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:
      return "more than " + std::to_string(kMaxIssuersBetween) +
             " certificates are between it and its CA";
    default:
      return X509_verify_cert_error_string(error);
  }
}

std::vector<Error> faults_of_member(const CertificateChain& chain,
                                    std::span<X509* const> authorities, sys_seconds now) {
  X509* const certificate = chain.front().get();
  std::vector<Error> faults;
  check_dates(certificate, now, faults);
  if (identities_in(certificate).empty()) faults.push_back(refused(std::string(kNamesNobody)));
  // All bits where it does not say what it is for.
  const std::uint32_t usage = X509_get_extended_key_usage(certificate);
  const bool is_self_signed = (X509_get_extension_flags(certificate) & EXFLAG_SS) != 0;
  int untrusted =
      authorities.empty() && is_self_signed ? X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT : X509_V_OK;
  for (const Purpose& each : kPurposes) {
    if ((usage & each.usage) == 0) {
      faults.push_back(refused("it lacks the extended key usage " + std::string(each.name) +
                               ", and either end may be the one that dials"));
    } else if (!authorities.empty() && untrusted == X509_V_OK) {
      untrusted = verify(chain, authorities, each.purpose);
    }
  }
  if (untrusted != X509_V_OK) faults.push_back(refused(why_untrusted(untrusted)));
  return faults;
}

std::vector<Error> faults_of_authority(const X509* certificate, sys_seconds now) {
  std::vector<Error> faults;
  check_dates(certificate, now, faults);
  return faults;
}

}  // namespace tendon::v0::detail
