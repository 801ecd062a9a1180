// SPDX-License-Identifier: Apache-2.0
// Folders of certificates and their private keys: those of a CA, and those of a host. Everybody may
// read certificates, but only this user may read keys; nothing is ever overwritten.
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

/// Writes DIRECTORY/ca.crt and ca.key. The directory is made (0700) if only it is missing. Either
/// both files are written, or neither is.
[[nodiscard]] Result<CertificateFiles> save_authority(const std::filesystem::path& directory,
                                                      const Credential& authority);
/// Loads those files. They must match each other, and nobody else may have been able to write them.
[[nodiscard]] Result<Credential> load_authority(const std::filesystem::path& directory);

/// Writes DIRECTORY/NAME.crt, NAME.key and ca.crt in the same way. An existing ca.crt stays if it
/// has the same content.
[[nodiscard]] Result<CertificateFiles> save_certificate(const std::filesystem::path& directory,
                                                        const std::string& name,
                                                        const Credential& member,
                                                        const X509* authority);

}  // namespace tendon::v0::detail
