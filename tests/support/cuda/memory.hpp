// SPDX-License-Identifier: Apache-2.0
// Memory of the double: what is allocated, and what lies at which address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cuda/driver_types.hpp"
#include "support/cuda/pinned_pages.hpp"

namespace tendon::cuda_double {

using v0::detail::cuda::AccessFlags;
using v0::detail::cuda::AllocationProperties;
using v0::detail::cuda::DeviceAddress;
using v0::detail::cuda::MemoryHandle;
using v0::detail::cuda::Status;

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

/// Memory of a device: a memfd whose name says which device has it.
struct Allocation {
  Allocation() = default;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  int descriptor = -1;
  std::size_t bytes = 0;
  int device = 0;
  bool may_be_exported = false;
  std::size_t* counted = nullptr;  ///< the bytes that its device has given out, if this process did
};

/// A range of addresses with memory behind it.
struct Region {
  DeviceAddress address = 0;  ///< as the program knows it: no access by the host
  std::size_t bytes = 0;
  std::byte* memory = nullptr;  ///< where the double reads and writes it
  AccessFlags access = AccessFlags::none;
  int device = 0;
  bool is_host = false;   ///< registered memory of the program: `memory` is its own
  bool is_plain = false;  ///< of cuMemAlloc: not mapped by the program
  std::shared_ptr<Allocation> allocation{};
  std::shared_ptr<PinnedPages> pins{};  ///< of registered memory, where they are asked for
};

/// The table of what lies where. Its users hold the lock of the world.
struct AddressBook {
  std::map<DeviceAddress, std::size_t> reserved;
  std::map<DeviceAddress, Region> regions;
  std::map<std::uintptr_t, DeviceAddress> registered;  ///< by the address of the host
  std::map<MemoryHandle, std::shared_ptr<Allocation>> handles;
  MemoryHandle last_handle = 0;

  /// The region that has all of the range; null where none has.
  [[nodiscard]] const Region* find(DeviceAddress address, std::size_t bytes) const;
  /// The same for an address of the host in registered memory.
  [[nodiscard]] const Region* find_registered(std::uintptr_t address, std::size_t bytes) const;
  /// Returns all memory and all addresses to the system.
  void give_back();
  /// Is it within what was reserved, mapped or not?
  [[nodiscard]] bool is_reserved(DeviceAddress address) const;
};

/// Addresses that nobody may touch; 0 where there are none.
DeviceAddress reserve_addresses(std::size_t bytes, std::size_t alignment);
void free_addresses(DeviceAddress address, std::size_t bytes);
/// The double's own way to an allocation; null where the system has no room.
std::byte* map_alias(const Allocation& allocation, std::size_t bytes, std::size_t offset);
void unmap_alias(std::byte* memory, std::size_t bytes);

}  // namespace tendon::cuda_double
