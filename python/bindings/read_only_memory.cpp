// SPDX-License-Identifier: Apache-2.0
#include "read_only_memory.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <tendon/tensor/packed.hpp>

#include "core/text.hpp"
#include "memory_faults.hpp"

namespace tendon::python {
namespace {

/// Written with the GIL, read by a signal handler on any thread. A place that is being filled has
/// the number 0.
struct Place {
  std::atomic<std::uint64_t> number{0};  ///< rises with each note; 0: free, or being filled
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> size_bytes{0};
  std::size_t key_hash = 0;
  std::size_t text_bytes = 0;
  std::array<char, kKeyShownBytes> text{};
};
constinit std::array<Place, kMostReadOnly> places{};
constinit std::uint64_t last_number = 0;  // guarded by the GIL

// A note uses one of these adjacent places of the table.
constexpr std::size_t kNeighbours = 8;
static_assert((kMostReadOnly & (kMostReadOnly - 1)) == 0 && kMostReadOnly > kNeighbours);

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

/// Returns the place of this memory, else a free one, else the oldest.
Place& place_of(std::uintptr_t begin) noexcept {
  const std::size_t home = (begin >> 6) * 0x9E3779B97F4A7C15 >> 40;
  Place* oldest = nullptr;
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    Place& place = places[(home + i) % kMostReadOnly];
    if (place.begin.load(std::memory_order_relaxed) == begin) return place;
    if (oldest == nullptr || place.number.load(std::memory_order_relaxed) <
                                 oldest->number.load(std::memory_order_relaxed))
      oldest = &place;
  }
  return *oldest;
}

void fill(Place& place, std::uintptr_t begin, std::size_t size_bytes, std::string_view key,
          std::size_t key_hash) {
  const std::string shown = detail::cleaned(key, kKeyShownBytes);
  place.number.store(0);
  place.begin.store(begin);
  place.size_bytes.store(size_bytes);
  place.key_hash = key_hash;
  place.text_bytes = shown.copy(place.text.data(), place.text.size());
}

}  // namespace

void note_read_only(const Storage& memory, std::string_view key) {
  if (memory.access() != Access::read_only || memory.origin() != Origin::peer_slot) return;
  static const bool kIsExplained = (explain_memory_faults(), true);
  (void)kIsExplained;
  const std::uintptr_t begin = number_of(memory.data());
  const std::size_t key_hash = std::hash<std::string_view>()(key);
  Place& place = place_of(begin);
  const bool is_known = place.begin.load(std::memory_order_relaxed) == begin &&
                        place.size_bytes.load(std::memory_order_relaxed) == memory.size_bytes() &&
                        place.key_hash == key_hash;
  if (!is_known) fill(place, begin, memory.size_bytes(), key, key_hash);
  place.number.store(++last_number, std::memory_order_release);
}

void note_read_only(const TensorDict& batch, std::string_view key) {
  if (const PackedView* const packed = packed_view(batch)) note_read_only(packed->storage, key);
}

std::string_view key_of_read_only(const void* address) noexcept {
  // Slots of several sizes may have been at the address: the latest note counts.
  const Place* found = nullptr;
  std::uint64_t latest = 0;
  for (const Place& place : places) {
    const std::uint64_t number = place.number.load(std::memory_order_acquire);
    if (number <= latest || number_of(address) - place.begin.load() >= place.size_bytes.load())
      continue;
    found = &place;
    latest = number;
  }
  return found == nullptr ? std::string_view()
                          : std::string_view(found->text.data(), found->text_bytes);
}

}  // namespace tendon::python
