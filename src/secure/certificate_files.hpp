// SPDX-License-Identifier: Apache-2.0
// Folders of certificates and their private keys: those of a CA, and those that a host gets.
// Certificates may be read by all, keys by this user alone; nothing is ever overwritten.
#pragma once

#include <filesystem>
#include <string>
#include <tendon/core/result.hpp>

#include "secure/certificate.hpp"

namespace tendon::v0::detail {

struct CertificateFiles {
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path authority;  ///< the certificate of the CA
};

/// Writes DIRECTORY/ca.crt and ca.key. The directory is made (0700) where only it is missing. Both
/// files are there then, or none is new.
[[nodiscard]] Result<CertificateFiles> save_authority(const std::filesystem::path& directory,
                                                      const Credential& authority);
/// Those files, which belong together and which nobody else may have written.
[[nodiscard]] Result<Credential> load_authority(const std::filesystem::path& directory);

/// Writes DIRECTORY/NAME.crt, NAME.key and ca.crt, likewise. A ca.crt that is there already stays
/// if it is the same.
[[nodiscard]] Result<CertificateFiles> save_certificate(const std::filesystem::path& directory,
                                                        const std::string& name,
                                                        const Credential& member,
                                                        const X509* authority);

}  // namespace tendon::v0::detail
