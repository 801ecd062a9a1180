// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail::cuda {

/// A shared library that was opened at run time. It stays to the end of the process: code that runs
/// at the end of one may still call it.
///
/// Owns:    nothing; the process keeps the library.
/// Threads: a value.
/// Errors:  not_supported, in the words of the dynamic linker, if it cannot be opened.
/// Blocks:  for the file, and for the library's own constructors.
/// Cost:    dlopen().
class TENDON_API Library {
 public:
  /// Opens a name, which is searched as the system searches libraries, or a path with a slash.
  [[nodiscard]] static Result<Library> open(const std::string& name);
  /// True if this process has opened it, Tendon or another library.
  [[nodiscard]] static bool is_open(const std::string& name) noexcept;
  /// The address that the library exports under this name; null if it does not.
  [[nodiscard]] void* symbol(const char* name) const noexcept;

 private:
  explicit Library(void* opened) : opened_(opened) {}
  void* opened_;
};

}  // namespace tendon::v0::detail::cuda
