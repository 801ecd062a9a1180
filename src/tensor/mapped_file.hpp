// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/memmap.hpp>
#include <vector>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// A regular file, opened to be read or mapped.
///
/// Owns:    a descriptor. A mapping lives on without it.
/// Threads: const calls are safe everywhere.
/// Errors:  those of system_error with the path; invalid_argument for anything but a regular file;
///          corrupt_data if the file became shorter.
/// Blocks:  on the disk.
/// Cost:    system calls.
class OpenFile {
 public:
  /// `where` appears in errors.
  [[nodiscard]] static Result<OpenFile> open(const std::filesystem::path& path,
                                             std::string_view where,
                                             MapMode mode = MapMode::copy_on_write);

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The first bytes, as they are now.
  [[nodiscard]] Result<std::vector<std::byte>> read_front(std::uint64_t size_bytes) const;
  /// Maps the whole file, which must have bytes.
  [[nodiscard]] Result<Storage> map() const;

 private:
  OpenFile(OwnedFd fd, std::uint64_t size_bytes, MapMode mode, std::string path,
           std::string_view where);
  [[nodiscard]] Error failure(std::string_view call) const;

  OwnedFd fd_;
  std::uint64_t size_bytes_;
  MapMode mode_;
  std::string path_;
  std::string_view where_;
};

}  // namespace tendon::v0::detail
