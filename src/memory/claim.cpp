// SPDX-License-Identifier: Apache-2.0
#include "memory/claim.hpp"

#include <cerrno>
#include <fstream>
#include <string>

#include "core/failpoint.hpp"
#include "core/process_wide.hpp"

namespace tendon::v0::detail {
namespace {

// With vm.overcommit_memory = 2 the system allows no memory beyond its commit limit. With shared
// memory a process learns that only when it touches a page.
bool overcommits_strictly() {
  static constinit MadeOnce<const bool> is_strict;
  return is_strict.get([] {
    std::ifstream file("/proc/sys/vm/overcommit_memory");
    int mode = 0;
    return std::make_unique<const bool>(file >> mode && mode == 2);
  });
}

}  // namespace

Result<void> claim(const Segment& segment, std::uint64_t offset, std::uint64_t size_bytes) {
  const bool fails = TENDON_FAILPOINT("segment.claim");
  if (!fails && (!overcommits_strictly() || segment.prefault(offset, size_bytes))) return {};
  return Error{ErrorCode::resource_exhausted, "segment.claim",
               "the system has no " + std::to_string(size_bytes) +
                   " bytes of shared memory to give (its commit limit, vm.overcommit_memory = 2)",
               ENOMEM};
}

}  // namespace tendon::v0::detail
