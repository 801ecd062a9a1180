// SPDX-License-Identifier: Apache-2.0
// The verbs `tendon key`: the options of each, and the function that runs it and returns the exit
// code.
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/output.hpp"
#include "secure/shared_key.hpp"

namespace tendon::cli {

/// No core file, and no program without privileges, may have the memory of this process. Before
/// each of these verbs, and each other one that reads or makes a key.
void forbid_dumps();

/// The facts of a key that are no secret.
struct ShownKey {
  std::string label;
  std::string id;
  std::string made;  ///< empty where the file does not state it
};
[[nodiscard]] Result<ShownKey> shown_of(const detail::SharedKey& key);
[[nodiscard]] Value::Map document_of(const ShownKey& key);

enum class KeyPlace : std::uint8_t { new_file, added };

struct KeyNewOptions {
  std::string file;
  std::string label;  ///< empty: the name of the file
  KeyPlace place = KeyPlace::new_file;
  Format format = Format::text;
};
[[nodiscard]] int run_key_new(const KeyNewOptions& options);

struct KeyFileOptions {
  std::string file;
  Format format = Format::text;
};
[[nodiscard]] int run_key_show(const KeyFileOptions& options);
[[nodiscard]] int run_key_id(const KeyFileOptions& options);

struct KeyAuthorityOptions {
  std::string directory;
  Format format = Format::text;
};
[[nodiscard]] int run_key_ca(const KeyAuthorityOptions& options);

struct KeyCertificateOptions {
  std::string authority;  ///< the directory of the CA
  std::string name;
  std::vector<std::string> dns;
  std::vector<std::string> addresses;
  int days = 90;
  std::string directory;  ///< for the new files
  Format format = Format::text;
};
[[nodiscard]] int run_key_cert(const KeyCertificateOptions& options);

struct KeyCheckOptions {
  std::vector<std::string> files;
  std::string address;  ///< of a listener to ask; empty: asks none
  std::string peer;     ///< a name that its certificate must have; empty: the host of the address
  double timeout_s = 5;
  Format format = Format::text;
};
/// The exit code is that of the first fault.
[[nodiscard]] int run_key_check(const KeyCheckOptions& options);

}  // namespace tendon::cli
