// SPDX-License-Identifier: Apache-2.0
#include "memory/passed_mappings.hpp"

#include <atomic>
#include <fstream>
#include <string>

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kUsualMaxMapCount = 65530;  // of Linux, where /proc says nothing
constexpr std::uint64_t kPart = 4;

std::atomic<std::uint64_t> mapped_count{0};

}  // namespace

std::uint64_t most_passed_mappings() {
  static const std::uint64_t most = [] {
    std::ifstream file("/proc/sys/vm/max_map_count");
    std::uint64_t count = 0;
    return (file >> count && count != 0 ? count : kUsualMaxMapCount) / kPart;
  }();
  return most;
}

Result<void> add_passed_mapping() {
  if (mapped_count.fetch_add(1, std::memory_order_relaxed) < most_passed_mappings()) return {};
  drop_passed_mapping();
  return Error{
      ErrorCode::resource_exhausted, "segment.attach",
      std::to_string(most_passed_mappings()) +
          " segments of peers are mapped, which is a quarter of vm.max_map_count: end some "
          "links, or raise it"};
}

void drop_passed_mapping() noexcept { mapped_count.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace tendon::v0::detail
