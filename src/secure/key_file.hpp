// SPDX-License-Identifier: Apache-2.0
// Files of keys that hosts share: lines "tendon-key-v1 LABEL BASE64", and comments that begin with
// '#'. The first key is used to dial; all are accepted. An error quotes no word of a key line
// except a valid label.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/shared_key.hpp"

namespace tendon::v0::detail {

/// Most keys of one file; a rotation needs two.
inline constexpr std::size_t kMaxKeysOfFile = 64;

/// Parses the keys of `text`, at least one, with each label and each key only once. Errors:
/// corrupt_data or limit_exceeded, which name `file`, the line and the fault.
[[nodiscard]] Result<std::vector<SharedKey>> parse_keys(Bytes text,
                                                        const std::filesystem::path& file);
/// Loads a file that nobody else may read or write. Errors: also those of CredentialFile.
[[nodiscard]] Result<std::vector<SharedKey>> load_keys(const std::filesystem::path& file);

/// Makes a file with one new key that only this user may read. An empty label becomes the name of
/// the file without its extension. Errors: permission_denied where the file exists.
[[nodiscard]] Result<SharedKey> make_key_file(const std::filesystem::path& file, std::string label);
/// Appends a new key to a file. An empty label becomes that of the first key with a number:
/// "fleet-2". The file changes as a whole, or not at all. Errors: `busy` where another program adds
/// to it.
[[nodiscard]] Result<SharedKey> add_key(const std::filesystem::path& file, std::string label);

}  // namespace tendon::v0::detail
