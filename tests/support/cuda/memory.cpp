// SPDX-License-Identifier: Apache-2.0
#include "support/cuda/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace tendon::cuda_double {
namespace {

void* pointer_of(DeviceAddress address) { return reinterpret_cast<void*>(address); }

}  // namespace

Allocation::~Allocation() {
  if (descriptor >= 0) close(descriptor);
  if (counted != nullptr) *counted -= bytes;
}

const Region* AddressBook::find(DeviceAddress address, std::size_t bytes) const {
  auto after = regions.upper_bound(address);
  if (after == regions.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  const std::size_t offset = address - region.address;
  return offset < region.bytes && bytes <= region.bytes - offset ? &region : nullptr;
}

const Region* AddressBook::find_registered(std::uintptr_t address, std::size_t bytes) const {
  auto after = registered.upper_bound(address);
  if (after == registered.begin()) return nullptr;
  const auto& [host, device] = *std::prev(after);
  return find(device + (address - host), bytes);
}

bool AddressBook::is_reserved(DeviceAddress address) const {
  auto after = reserved.upper_bound(address);
  return after != reserved.begin() && address - std::prev(after)->first < std::prev(after)->second;
}

void AddressBook::give_back() {
  for (const auto& [address, region] : regions)
    if (!region.is_host) unmap_alias(region.memory, region.bytes);
  for (const auto& [address, bytes] : reserved)
    free_addresses(address - address % kPage, bytes + address % kPage);
  *this = {};
}

DeviceAddress reserve_addresses(std::size_t bytes, std::size_t alignment) {
  const std::size_t room = bytes + alignment;
  void* const mapped =
      mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<DeviceAddress>(mapped);
  const DeviceAddress address = (begin + alignment - 1) / alignment * alignment;
  if (address > begin) munmap(mapped, address - begin);
  if (begin + room > address + bytes)
    munmap(pointer_of(address + bytes), begin + room - address - bytes);
  return address;
}

void free_addresses(DeviceAddress address, std::size_t bytes) {
  munmap(pointer_of(address), bytes);
}

std::byte* map_alias(const Allocation& allocation, std::size_t bytes, std::size_t offset) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            allocation.descriptor, static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

void unmap_alias(std::byte* memory, std::size_t bytes) { munmap(memory, bytes); }

}  // namespace tendon::cuda_double
