// SPDX-License-Identifier: Apache-2.0
// The resources of the system that this process holds. They must not grow with the number of former
// peers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <system_error>

namespace tendon::test {

struct Held {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;  ///< of shared memory
  friend bool operator==(const Held&, const Held&) = default;

  static Held now() {
    Held held;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // set for the iterator's own descriptor
      const std::string target = std::filesystem::read_symlink(entry.path(), gone);
      if (!gone && !target.starts_with("/proc/")) ++held.descriptors;
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("/memfd:tendon") != std::string::npos) ++held.mappings;
    return held;
  }
};

/// Prints "3 2": descriptors, mappings.
inline std::ostream& operator<<(std::ostream& out, const Held& held) {
  return out << held.descriptors << " " << held.mappings;
}

}  // namespace tendon::test
