// SPDX-License-Identifier: Apache-2.0
// Files of keys that hosts share: lines "tendon-key-v1 LABEL BASE64", and comments that begin with
// '#'. The first key is dialled with, all are accepted. No error has a word of such a line but a
// label that is one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/shared_key.hpp"

namespace tendon::v0::detail {

/// Most keys of one file: a rotation needs two.
inline constexpr std::size_t kMaxKeysOfFile = 64;

/// The keys of `text`, at least one, each label and each key once. corrupt_data, or limit_exceeded,
/// names `file`, the line, and what is wrong with it.
[[nodiscard]] Result<std::vector<SharedKey>> parse_keys(Bytes text,
                                                        const std::filesystem::path& file);
/// Those of a file that nobody else may read or write; also the errors of CredentialFile.
[[nodiscard]] Result<std::vector<SharedKey>> load_keys(const std::filesystem::path& file);

/// Makes a file with one new key, which only this user may read. An empty label becomes the name of
/// the file without its extension. permission_denied where the file exists.
[[nodiscard]] Result<SharedKey> make_key_file(const std::filesystem::path& file, std::string label);
/// Adds a new key behind those of a file. An empty label becomes that of the first one with a
/// number: "fleet-2". The file changes as a whole, or not at all; `busy` where another program adds
/// to it.
[[nodiscard]] Result<SharedKey> add_key(const std::filesystem::path& file, std::string label);

}  // namespace tendon::v0::detail
