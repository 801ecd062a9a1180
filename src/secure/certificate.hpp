// SPDX-License-Identifier: Apache-2.0
// X.509 certificates and their private keys, read from PEM.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/crypto_library.hpp"

namespace tendon::v0::detail {

/// The certificate of a member, then those between it and the CA.
using CertificateChain = std::vector<CryptoOwned<X509>>;

struct Validity {
  std::chrono::sys_seconds begins;
  std::chrono::sys_seconds ends;
};

/// A certificate with its private key.
struct Credential {
  CryptoOwned<X509> certificate;
  CryptoOwned<EVP_PKEY> key;
};

/// Parses all certificates of `text`, at least one. Errors: corrupt_data, which names `file`.
[[nodiscard]] Result<CertificateChain> parse_certificates(Bytes text,
                                                          const std::filesystem::path& file);
/// Parses the private key of `text`, which no password may protect. Errors: corrupt_data, which
/// names `file`.
[[nodiscard]] Result<CryptoOwned<EVP_PKEY>> parse_private_key(Bytes text,
                                                              const std::filesystem::path& file);

[[nodiscard]] Validity validity_of(const X509* certificate);
/// True if the certificate may sign others.
[[nodiscard]] bool is_authority(X509* certificate);
/// The subject alternative names: "tendon:worker-3", "dns:a.example", "ip:10.0.0.5". A URI or a DNS
/// name with hidden characters is left out.
[[nodiscard]] std::vector<std::string> names_in(const X509* certificate);

}  // namespace tendon::v0::detail
