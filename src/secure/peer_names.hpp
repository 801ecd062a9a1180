// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "secure/openssl.hpp"

namespace tendon::v0::detail::secure {

/// The names in a certificate: those of its subjectAltName (RFC 5280, section 4.2.1.6), URIs first,
/// then DNS names. The subject is not looked at. A name with characters beyond printable ASCII is
/// none.
class PeerNames {
 public:
  [[nodiscard]] static PeerNames of(const X509* certificate);
  /// Is `name` one of its URIs, DNS names (also by a wildcard of the certificate) or addresses?
  [[nodiscard]] static bool has(X509* certificate, const std::string& name);

  [[nodiscard]] const std::vector<std::string>& all() const noexcept { return all_; }
  [[nodiscard]] std::vector<std::string> take() && { return std::move(all_); }
  /// For a human.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<std::string> all_;
};

}  // namespace tendon::v0::detail::secure
