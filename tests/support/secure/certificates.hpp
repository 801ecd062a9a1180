// SPDX-License-Identifier: Apache-2.0
// Certificates of every kind that a peer may show, for tests.
#pragma once

#include <string>
#include <vector>

#include "secure/certificate.hpp"

namespace tendon::test {

/// The contents of a certificate, valid unless a test changes them.
struct CertificateText {
  std::string subject = "an end";
  std::string names = "URI:tendon://robot/7, DNS:robot-7.example, IP:127.0.0.1";
  std::string usage = "serverAuth, clientAuth";
  int valid_from_s = -60;  // from now
  int valid_to_s = 3600;
  bool is_authority = false;
};

/// A certificate with its key.
class Certificate {
 public:
  /// Makes a certificate that its own key signed.
  [[nodiscard]] static Certificate root(const CertificateText& text);
  [[nodiscard]] static Certificate authority(const std::string& name);
  [[nodiscard]] Certificate sign(const CertificateText& text) const;
  [[nodiscard]] Certificate sign_authority(const std::string& name) const;

  /// These return copies.
  [[nodiscard]] detail::CryptoOwned<X509> certificate() const;
  [[nodiscard]] detail::CryptoOwned<EVP_PKEY> key() const;

 private:
  [[nodiscard]] static Certificate make(const CertificateText& text, const Certificate* issuer);

  detail::CryptoOwned<EVP_PKEY> key_;
  detail::CryptoOwned<X509> certificate_;
};

}  // namespace tendon::test
