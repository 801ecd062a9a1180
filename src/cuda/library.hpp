// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail::cuda {

/// A shared library that was opened at run time. It stays to the end of the process: what runs at
/// the end of one may still call it.
///
/// Owns:    nothing; the process keeps the library.
/// Threads: a value.
/// Errors:  not_supported, in the words of the dynamic linker, where it cannot be opened.
/// Blocks:  for the file, and for the library's own constructors.
/// Cost:    dlopen().
class TENDON_API Library {
 public:
  /// A name, which is looked for as the system looks for libraries, or a path with a slash.
  [[nodiscard]] static Result<Library> open(const std::string& name);
  /// Has this process opened it, Tendon or another library?
  [[nodiscard]] static bool is_open(const std::string& name) noexcept;
  /// The address that the library exports under this name; null where it does not.
  [[nodiscard]] void* symbol(const char* name) const noexcept;

 private:
  explicit Library(void* opened) : opened_(opened) {}
  void* opened_;
};

}  // namespace tendon::v0::detail::cuda
