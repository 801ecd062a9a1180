// SPDX-License-Identifier: Apache-2.0
// Memory of the double: allocations, and the addresses at which they lie.
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

/// Memory of a device: a memfd whose name contains its device.
struct Allocation {
  Allocation() = default;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  int descriptor = -1;
  std::size_t bytes = 0;
  int device = 0;
  bool may_be_exported = false;
  std::size_t* counted = nullptr;  ///< the count of its device, if this process allocated it
};

/// A range of addresses with memory behind it.
struct Region {
  DeviceAddress address = 0;  ///< the address that the program knows: the host cannot use it
  std::size_t bytes = 0;
  std::byte* memory = nullptr;  ///< the address at which the double reads and writes it
  AccessFlags access = AccessFlags::none;
  int device = 0;
  bool is_host = false;   ///< registered memory of the program: `memory` is its own address
  bool is_plain = false;  ///< from cuMemAlloc: not mapped by the program
  std::shared_ptr<Allocation> allocation{};
  std::shared_ptr<PinnedPages> pins{};  ///< for registered memory, if the settings ask for them
};

/// The table of regions and addresses. Its users hold the lock of the world.
struct AddressBook {
  std::map<DeviceAddress, std::size_t> reserved;
  std::map<DeviceAddress, Region> regions;
  std::map<std::uintptr_t, DeviceAddress> registered;  ///< by the address of the host
  std::map<MemoryHandle, std::shared_ptr<Allocation>> handles;
  MemoryHandle last_handle = 0;

  /// Returns the region that has the whole range; null if none has.
  [[nodiscard]] const Region* find(DeviceAddress address, std::size_t bytes) const;
  /// Finds the same for an address of the host in registered memory.
  [[nodiscard]] const Region* find_registered(std::uintptr_t address, std::size_t bytes) const;
  /// Returns all memory and all addresses to the system.
  void give_back();
  /// True if the address lies in a reserved range, mapped or not.
  [[nodiscard]] bool is_reserved(DeviceAddress address) const;
};

/// Reserves addresses that nobody may touch; 0 if there are none.
DeviceAddress reserve_addresses(std::size_t bytes, std::size_t alignment);
void free_addresses(DeviceAddress address, std::size_t bytes);
/// Maps an allocation for the double itself; null if the system has no room.
std::byte* map_alias(const Allocation& allocation, std::size_t bytes, std::size_t offset);
void unmap_alias(std::byte* memory, std::size_t bytes);

}  // namespace tendon::cuda_double
