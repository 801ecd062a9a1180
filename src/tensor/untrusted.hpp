// SPDX-License-Identifier: Apache-2.0
// Errors and checks that the readers of files, folders and messages share.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/tensor/path.hpp>

namespace tendon::v0::detail {

/// An argument fault of a program is corrupt data if the argument was read from outside.
[[nodiscard]] inline Error from_outside(Error failed) {
  if (failed.code == ErrorCode::invalid_argument) failed.code = ErrorCode::corrupt_data;
  return failed;
}

/// The error, with the file in front of its detail.
[[nodiscard]] inline Error in_file(Error failed, const std::filesystem::path& path) {
  failed.detail = "'" + path.string() + "': " + failed.detail;
  return failed;
}

/// The path of an entry, from that of its TensorDict; "" is the outermost one.
[[nodiscard]] inline std::string path_below(std::string_view path, std::string_view name) {
  return (path.empty() ? std::string() : std::string(path) + "/") + escape_name(name);
}

}  // namespace tendon::v0::detail
