// SPDX-License-Identifier: Apache-2.0
#include "memory/mapped_ranges.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/child.hpp"

namespace tendon::v0::detail {
namespace {

using test::exited_with;
using test::run_in_child;

const void* address(std::uintptr_t number) { return reinterpret_cast<const void*>(number); }

TEST(MappedRanges, AreLostInAForkedChildAndNowhereElse) {
  const std::array<std::byte, 64> memory{};
  const std::byte* const begin = memory.data();
  note_mapped(begin, memory.size());
  EXPECT_FALSE(was_lost_by_fork(begin));
  EXPECT_TRUE(is_mapped(begin) && is_mapped(begin + 63));
  EXPECT_FALSE(is_mapped(begin + 64) || is_mapped(begin - 1) || is_mapped(nullptr));
  int status = run_in_child([&] {
    note_unmapped(begin);  // the parent's range
    if (!was_lost_by_fork(begin) || !was_lost_by_fork(begin + 63)) return 1;
    if (was_lost_by_fork(begin + 64) || was_lost_by_fork(begin - 1)) return 2;
    if (is_mapped(begin)) return 4;
    return was_lost_by_fork(nullptr) ? 3 : 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  note_unmapped(begin);
  status = run_in_child([&] { return was_lost_by_fork(begin) ? 1 : 0; });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(MappedRanges, BeyondTheLastPlaceAreNotKnown) {
  constexpr std::uintptr_t kStep = 4096;
  const int status = run_in_child([] {
    for (std::uintptr_t n = 1; n <= kMostMappedRanges + 1; ++n)
      note_mapped(address(n * kStep), kStep);
    const int lost = run_in_child([] {
      if (!was_lost_by_fork(address(kMostMappedRanges * kStep))) return 1;
      return was_lost_by_fork(address((kMostMappedRanges + 1) * kStep)) ? 2 : 0;
    });
    return exited_with(lost, 0) ? 0 : 1;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

}  // namespace
}  // namespace tendon::v0::detail
