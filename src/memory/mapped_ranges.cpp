// SPDX-License-Identifier: Apache-2.0
#include "memory/mapped_ranges.hpp"

#include <array>
#include <atomic>
#include <cstdint>

#include "core/fork_guard.hpp"

namespace tendon::v0::detail {
namespace {

///   free -> filled by one thread -> shown -> free
/// A child finds its parent's ranges shown for good: their segments end in the parent.
struct Range {
  enum class State : std::uint8_t { free, filled, shown };
  std::atomic<State> state{State::free};
  std::atomic<std::uint32_t> process{0};
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> size_bytes{0};
};
constinit std::array<Range, kMostMappedRanges> ranges{};

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

bool holds(const Range& range, const void* address) noexcept {
  return range.state.load() == Range::State::shown &&
         number_of(address) - range.begin.load() < range.size_bytes.load();
}

}  // namespace

void note_mapped(const void* begin, std::size_t size_bytes) noexcept {
  for (Range& range : ranges) {
    auto state = Range::State::free;
    if (!range.state.compare_exchange_strong(state, Range::State::filled)) continue;
    range.process.store(process_number());
    range.begin.store(number_of(begin));
    range.size_bytes.store(size_bytes);
    range.state.store(Range::State::shown);
    return;
  }
}

void note_unmapped(const void* begin) noexcept {
  for (Range& range : ranges) {
    const bool is_meant = range.state.load() == Range::State::shown &&
                          range.process.load() == process_number() &&
                          range.begin.load() == number_of(begin);
    if (!is_meant) continue;
    range.state.store(Range::State::free);
    return;
  }
}

bool was_lost_by_fork(const void* address) noexcept {
  for (const Range& range : ranges)
    if (holds(range, address) && range.process.load() != process_number()) return true;
  return false;
}

bool is_mapped(const void* address) noexcept {
  for (const Range& range : ranges)
    if (holds(range, address) && range.process.load() == process_number()) return true;
  return false;
}

}  // namespace tendon::v0::detail
