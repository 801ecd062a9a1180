// SPDX-License-Identifier: Apache-2.0
// Memory of the device: allocations, their addresses and their descriptors.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>

#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

/// Begins the name of the memfd of a handle, which names the device. Nothing else is a handle.
constexpr std::string_view kMark = "cuda-double:";

std::string name_of(const Uuid& uuid) {
  std::string name(kMark);
  for (const unsigned char byte : uuid.bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    name += digits.data();
  }
  return name;
}

bool is_device_of(const World& all, const Location& location) {
  return location.type == LocationType::device && location.id >= 0 &&
         static_cast<std::size_t>(location.id) < all.contexts.size();
}

bool is_legal(const World& all, const AllocationProperties* properties) {
  return properties != nullptr && properties->type == AllocationType::pinned &&
         is_device_of(all, properties->location);
}

std::shared_ptr<Allocation> allocate(World& all, int device, std::size_t bytes) {
  std::size_t& given_out = all.bytes_given_out[static_cast<std::size_t>(device)];
  if (bytes > all.settings.memory_bytes - given_out) return nullptr;
  auto allocation = std::make_shared<Allocation>();
  const std::string name = name_of(all.settings.devices[static_cast<std::size_t>(device)]);
  allocation->descriptor = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (allocation->descriptor < 0 ||
      ftruncate(allocation->descriptor, static_cast<off_t>(bytes)) != 0)
    return nullptr;
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->counted = &given_out;
  given_out += bytes;
  return allocation;
}

/// Returns the device of the memory of a descriptor; -1 if it is of another world; nothing if the
/// descriptor is no handle.
std::optional<int> device_of(const World& all, int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  std::array<char, 256> target{};
  const ssize_t read = readlink(link.c_str(), target.data(), target.size());
  if (read <= 0) return std::nullopt;
  const std::string_view name(target.data(), static_cast<std::size_t>(read));
  if (!name.starts_with("/memfd:" + std::string(kMark))) return std::nullopt;
  for (std::size_t device = 0; device < all.settings.devices.size(); ++device)
    if (name.starts_with("/memfd:" + name_of(all.settings.devices[device])))
      return static_cast<int>(device);
  return -1;
}

Allocation* allocation_of(World& all, MemoryHandle handle) {
  const auto found = all.addresses.handles.find(handle);
  return found == all.addresses.handles.end() ? nullptr : found->second.get();
}

void drop(World& all, std::map<DeviceAddress, Region>::iterator region) {
  unmap_alias(region->second.memory, region->second.bytes);
  all.addresses.regions.erase(region);
}

/// True if the range has regions, and none of them extends beyond it.
bool has_whole_regions(const World& all, DeviceAddress address, std::size_t bytes) {
  std::size_t count = 0;
  for (const auto& [begin, region] : all.addresses.regions) {
    if (begin >= address + bytes || begin + region.bytes <= address) continue;
    if (begin < address || begin + region.bytes > address + bytes || region.is_host) return false;
    ++count;
  }
  return count > 0;
}

}  // namespace

Status memory_get_granularity(std::size_t* bytes, const AllocationProperties* properties,
                              GranularityKind) {
  if (!is_legal(world(), properties)) return Status::invalid_value;
  *bytes = kGranularity;
  return Status::success;
}

Status memory_create(MemoryHandle* handle, std::size_t bytes,
                     const AllocationProperties* properties, unsigned long long flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (!is_legal(all, properties) || flags != 0 || bytes == 0 || bytes % kGranularity != 0)
    return Status::invalid_value;
  auto allocation = allocate(all, properties->location.id, bytes);
  if (allocation == nullptr) return Status::out_of_memory;
  allocation->may_be_exported = properties->handle_types == HandleType::posix_descriptor;
  *handle = ++all.addresses.last_handle;
  all.addresses.handles[*handle] = std::move(allocation);
  return Status::success;
}

Status memory_release(MemoryHandle handle) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  return all.addresses.handles.erase(handle) == 1 ? Status::success : Status::invalid_value;
}

Status memory_get_properties(AllocationProperties* properties, MemoryHandle handle) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const Allocation* const allocation = allocation_of(all, handle);
  if (allocation == nullptr) return Status::invalid_value;
  *properties = {};
  properties->type = AllocationType::pinned;
  properties->handle_types =
      allocation->may_be_exported ? HandleType::posix_descriptor : HandleType::none;
  properties->location = {LocationType::device, allocation->device};
  return Status::success;
}

Status memory_export(void* descriptor, MemoryHandle handle, HandleType type,
                     unsigned long long flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const Allocation* const allocation = allocation_of(all, handle);
  if (allocation == nullptr || !allocation->may_be_exported || flags != 0 ||
      type != HandleType::posix_descriptor)
    return Status::invalid_value;
  const int copy = fcntl(allocation->descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return Status::out_of_memory;
  *static_cast<int*>(descriptor) = copy;
  return Status::success;
}

Status memory_import(MemoryHandle* handle, void* descriptor, HandleType type) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const int passed = static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor));
  const auto device = device_of(all, passed);
  struct stat about {};
  if (type != HandleType::posix_descriptor || !device || fstat(passed, &about) != 0)
    return Status::invalid_value;
  if (*device < 0) return Status::invalid_device;
  auto allocation = std::make_shared<Allocation>();
  allocation->descriptor = fcntl(passed, F_DUPFD_CLOEXEC, 0);
  if (allocation->descriptor < 0) return Status::out_of_memory;
  allocation->bytes = static_cast<std::size_t>(about.st_size);
  allocation->device = *device;
  allocation->may_be_exported = true;
  *handle = ++all.addresses.last_handle;
  all.addresses.handles[*handle] = std::move(allocation);
  return Status::success;
}

Status address_reserve(DeviceAddress* address, std::size_t bytes, std::size_t alignment,
                       DeviceAddress, unsigned long long flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) return Status::invalid_value;
  *address = reserve_addresses(bytes, alignment > kGranularity ? alignment : kGranularity);
  if (*address == 0) return Status::out_of_memory;
  all.addresses.reserved[*address] = bytes;
  return Status::success;
}

Status address_free(DeviceAddress address, std::size_t bytes) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const auto found = all.addresses.reserved.find(address);
  if (found == all.addresses.reserved.end() || found->second != bytes ||
      has_whole_regions(all, address, bytes))
    return Status::invalid_value;
  free_addresses(address, bytes);
  all.addresses.reserved.erase(found);
  return Status::success;
}

Status memory_map(DeviceAddress address, std::size_t bytes, std::size_t offset, MemoryHandle handle,
                  unsigned long long flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  AddressBook& book = all.addresses;
  const auto found = book.handles.find(handle);
  const bool is_whole = found != book.handles.end() && offset == 0 && flags == 0 &&
                        bytes == found->second->bytes && address % kGranularity == 0;
  if (!is_whole || !book.is_reserved(address) || !book.is_reserved(address + bytes - 1) ||
      book.find(address, 1) != nullptr || book.find(address + bytes - 1, 1) != nullptr)
    return Status::invalid_value;
  std::byte* const memory = map_alias(*found->second, bytes, offset);
  if (memory == nullptr) return Status::out_of_memory;
  book.regions[address] = Region{.address = address,
                                 .bytes = bytes,
                                 .memory = memory,
                                 .device = found->second->device,
                                 .allocation = found->second};
  return Status::success;
}

Status memory_unmap(DeviceAddress address, std::size_t bytes) {
  World& all = world();
  WorldLock lock(all.mutex);
  if (!has_whole_regions(all, address, bytes)) return Status::invalid_value;
  wait_for_all(lock, all);
  auto& regions = all.addresses.regions;
  for (auto region = regions.lower_bound(address);
       region != regions.end() && region->first < address + bytes;)
    drop(all, region++);
  return Status::success;
}

Status memory_set_access(DeviceAddress address, std::size_t bytes, const AccessDescription* access,
                         std::size_t count) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (count != 1 || !is_device_of(all, access->location) || !has_whole_regions(all, address, bytes))
    return Status::invalid_value;
  for (auto& [begin, region] : all.addresses.regions)
    if (address <= begin && begin < address + bytes) region.access = access->flags;
  return Status::success;
}

Status memory_allocate(DeviceAddress* address, std::size_t bytes) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (current_contexts().empty()) return Status::invalid_context;
  if (bytes == 0) return Status::invalid_value;
  const std::size_t whole = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const int device = current_contexts().back()->device;
  auto allocation = allocate(all, device, whole);
  if (allocation == nullptr) return Status::out_of_memory;
  std::byte* const memory = map_alias(*allocation, whole, 0);
  *address = memory != nullptr ? reserve_addresses(whole, kGranularity) : 0;
  if (*address == 0) return Status::out_of_memory;
  all.addresses.reserved[*address] = whole;
  all.addresses.regions[*address] = Region{.address = *address,
                                           .bytes = whole,
                                           .memory = memory,
                                           .access = AccessFlags::read_write,
                                           .device = device,
                                           .is_plain = true,
                                           .allocation = std::move(allocation)};
  return Status::success;
}

Status memory_free(DeviceAddress address) {
  World& all = world();
  WorldLock lock(all.mutex);
  const auto found = all.addresses.regions.find(address);
  if (found == all.addresses.regions.end() || !found->second.is_plain) return Status::invalid_value;
  wait_for_all(lock, all);
  free_addresses(address, found->second.bytes);
  all.addresses.reserved.erase(address);
  drop(all, found);
  return Status::success;
}

}  // namespace tendon::cuda_double
