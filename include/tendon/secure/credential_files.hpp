// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tendon {
inline namespace v0 {

/// Files of credentials for secure links: a key (`tendon key new`), or a certificate with its key
/// and the CA of the peers' certificates (`tendon key ca`, `tendon key cert`). A listener may have
/// both, and accepts either; a connection then offers the key, unless Security::peer says a name.
/// An empty name: no such file.
struct CredentialFiles {
  std::string key = {};       ///< lines "tendon-key-v1 LABEL BASE64"
  std::string cert = {};      ///< PEM: this end's own certificate, then those between it and its CA
  std::string cert_key = {};  ///< PEM, without a passphrase
  std::string ca = {};        ///< PEM
  /// The file to which the secrets of each link are appended, in the format NSS Key Log, for a
  /// debugger of networks. Anyone who has it reads all that the links carry. Made with mode 0600.
  std::string keylog = {};

  friend bool operator==(const CredentialFiles&, const CredentialFiles&) = default;
};

}  // namespace v0
}  // namespace tendon
