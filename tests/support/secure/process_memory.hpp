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
  std::string name;  ///< as the line has it, and its flags
  bool is_readable = false;
  bool is_present = false;  ///< some of it
  bool is_locked = false;
  bool is_undumped = false;  ///< MADV_DONTDUMP
  bool is_wiped = false;     ///< MADV_WIPEONFORK
  /// It is SecretMemory: no other memory of the process is both.
  [[nodiscard]] bool is_secret() const { return is_undumped && is_wiped; }
};
[[nodiscard]] std::vector<Mapping> mappings();
/// That of an address.
[[nodiscard]] Mapping mapping_of(const void* address);
/// In all that is_secret().
[[nodiscard]] std::size_t secret_memory_bytes();

/// Looks for bytes that it does not have itself: it keeps them changed. Eight of them in a row,
/// from any multiple of eight, are a copy.
class SoughtBytes {
 public:
  /// Precondition: at least eight bytes; those behind the last eight are not sought.
  void add(Bytes secret);

  /// Where copies lie outside SecretMemory; one text a place.
  [[nodiscard]] std::vector<std::string> places_outside() const;
  /// How many copies lie in SecretMemory.
  [[nodiscard]] std::size_t count_inside() const;

 private:
  template <class F>
  void find_in(Bytes bytes, F found) const;

  std::vector<std::uint64_t> changed_;
  std::vector<bool> begins_ = std::vector<bool>(std::size_t{1} << 16);  // by their first two bytes
};

}  // namespace tendon::test
