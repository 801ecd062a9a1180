// SPDX-License-Identifier: Apache-2.0
// The memory of this process, by /proc/self: the pages that the kernel treats as pages of keys, and
// the places that hold a copy of a key.
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/bytes.hpp>
#include <vector>

namespace tendon::test {

/// A line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string name;  ///< the name and the flags in the line
  bool is_readable = false;
  bool is_present = false;  ///< some of its pages
  bool is_locked = false;
  bool is_undumped = false;  ///< MADV_DONTDUMP
  bool is_wiped = false;     ///< MADV_WIPEONFORK
  /// True for SecretMemory: no other memory of the process has both flags.
  [[nodiscard]] bool is_secret() const { return is_undumped && is_wiped; }
};
[[nodiscard]] std::vector<Mapping> mappings();
/// Returns the mapping that contains an address.
[[nodiscard]] Mapping mapping_of(const void* address);
/// Counts the bytes of all mappings that are is_secret().
[[nodiscard]] std::size_t secret_memory_bytes();

/// Looks for secret bytes without a copy of its own: it keeps them changed. Eight of them in a row,
/// from any multiple of eight, count as a copy.
class SoughtBytes {
 public:
  /// Precondition: at least eight bytes. Bytes behind the last multiple of eight are not sought.
  void add(Bytes secret);

  /// Returns the places of copies outside SecretMemory, one text each.
  [[nodiscard]] std::vector<std::string> places_outside() const;
  /// Counts the copies in SecretMemory.
  [[nodiscard]] std::size_t count_inside() const;

 private:
  template <class F>
  void find_in(Bytes bytes, F found) const;

  std::vector<std::uint64_t> changed_;
  std::vector<bool> begins_ = std::vector<bool>(std::size_t{1} << 16);  // by their first two bytes
};

}  // namespace tendon::test
