// SPDX-License-Identifier: Apache-2.0
#include "secure/peer_names.hpp"

#include <algorithm>

namespace tendon::v0::detail::secure {
namespace {

constexpr std::size_t kMaxNameBytes = 255;

bool is_legal(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

PeerNames PeerNames::of(const X509* certificate) {
  PeerNames found;
  const GeneralNamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (const int wanted : {GEN_URI, GEN_DNS}) {
    for (int n = 0; n < sk_GENERAL_NAME_num(names.get()); ++n) {
      int kind = 0;
      const auto* value = static_cast<const ASN1_STRING*>(
          GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), n), &kind));
      if (kind != wanted) continue;
      const std::string name(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                             static_cast<std::size_t>(ASN1_STRING_length(value)));
      if (is_legal(name)) found.all_.push_back(name);
    }
  }
  return found;
}

bool PeerNames::has(X509* certificate, const std::string& name) {
  const PeerNames names = of(certificate);
  if (name.find("://") != std::string::npos || std::ranges::count(names.all_, name) != 0)
    return std::ranges::count(names.all_, name) != 0;
  return X509_check_host(certificate, name.data(), name.size(),
                         X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS,
                         nullptr) == 1 ||
         X509_check_ip_asc(certificate, name.c_str(), 0) == 1;
}

std::string PeerNames::to_string() const {
  std::string text;
  for (const std::string& name : all_) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace tendon::v0::detail::secure
