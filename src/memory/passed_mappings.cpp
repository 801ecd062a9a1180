// SPDX-License-Identifier: Apache-2.0
#include "memory/passed_mappings.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <string>

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kUsualMaxMapCount = 65530;  // of Linux, if /proc is unreadable
constexpr std::uint64_t kPart = 4;

constinit std::atomic<std::uint64_t> mapped_count{0};
constinit std::atomic<std::uint64_t> known_most{0};  // 0: not read yet

std::uint64_t read_most() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  std::string line;
  std::getline(file, line);
  std::uint64_t count = 0;
  std::from_chars(line.data(), line.data() + line.size(), count);
  return std::max<std::uint64_t>(1, (count != 0 ? count : kUsualMaxMapCount) / kPart);
}

}  // namespace

std::uint64_t most_passed_mappings() {
  std::uint64_t most = known_most.load(std::memory_order_relaxed);
  if (most == 0) {
    most = read_most();
    known_most.store(most, std::memory_order_relaxed);
  }
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
