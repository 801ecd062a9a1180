// SPDX-License-Identifier: Apache-2.0
// Memory of the program that the device may reach at an address of its own, and the attributes of
// addresses.
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>

#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

/// How this process has mapped the whole range.
struct Mapped {
  bool is_readable = false;
  bool is_writable = false;
};

Mapped mapped_at(std::uintptr_t address, std::size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  Mapped mapped{true, true};
  std::uintptr_t covered = address;
  for (std::string line; covered < address + bytes && std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char readable = 0;
    char writable = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %c%c", &begin, &end, &readable,
                    &writable) != 4 ||
        end <= covered || begin > covered)
      continue;
    mapped.is_readable = mapped.is_readable && readable == 'r';
    mapped.is_writable = mapped.is_writable && writable == 'w';
    covered = end;
  }
  return covered < address + bytes ? Mapped{} : mapped;
}

bool is_registered(const AddressBook& book, std::uintptr_t address, std::size_t bytes) {
  for (const auto& [host, device] : book.registered)
    if (host < address + bytes && address < host + book.regions.at(device).bytes) return true;
  return false;
}

template <class T>
void answer(void* value, T said) {
  *static_cast<T*>(value) = said;
}

/// Tells one attribute of an address, which lies in `region` or nowhere.
Status tell(World& all, const Region* region, PointerAttribute attribute, DeviceAddress address,
            void* value) {
  const std::size_t offset = region != nullptr ? address - region->address : 0;
  const bool has_host = region != nullptr && region->is_host;
  switch (attribute) {
    case PointerAttribute::context: {
      const bool has_context = region != nullptr && (region->is_host || region->is_plain);
      answer(value,
             has_context ? &all.contexts[static_cast<std::size_t>(region->device)] : nullptr);
      return Status::success;
    }
    case PointerAttribute::memory_type:
      answer(value, region == nullptr
                        ? 0u
                        : static_cast<unsigned>(has_host ? MemoryType::host : MemoryType::device));
      return Status::success;
    case PointerAttribute::device_pointer:
      answer(value, region != nullptr ? address : 0);
      return Status::success;
    case PointerAttribute::host_pointer:
      answer(value, has_host ? region->memory + offset : nullptr);
      return Status::success;
    case PointerAttribute::is_managed:
      answer(value, 0u);
      return Status::success;
    case PointerAttribute::device_ordinal:
      answer(value, region != nullptr ? region->device : -2);
      return Status::success;
    case PointerAttribute::range_start:
      answer(value, region != nullptr ? region->address : 0);
      return Status::success;
    case PointerAttribute::range_bytes:
      answer(value, region != nullptr ? region->bytes : 0);
      return Status::success;
    case PointerAttribute::is_mapped:
      answer(value, region != nullptr ? 1u : 0u);
      return Status::success;
  }
  return Status::invalid_value;
}

}  // namespace

Status host_register(void* memory, std::size_t bytes, unsigned flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (current_contexts().empty()) return Status::invalid_context;
  const auto host = reinterpret_cast<std::uintptr_t>(memory);
  const bool is_read_only = (flags & kRegisterReadOnly) != 0;
  if (bytes == 0) return Status::invalid_value;
  if (is_registered(all.addresses, host, bytes)) return Status::host_memory_already_registered;
  const Mapped mapped = mapped_at(host, bytes);
  if (!mapped.is_readable || (!mapped.is_writable && !is_read_only)) return Status::invalid_value;
  const std::size_t in_page = host % kPage;
  const DeviceAddress pages = reserve_addresses(in_page + bytes, kPage);
  if (pages == 0) return Status::out_of_memory;
  const DeviceAddress address = pages + in_page;
  std::shared_ptr<PinnedPages> pins;
  if (all.settings.pins) pins = PinnedPages::of(static_cast<std::byte*>(memory), bytes);
  if (all.settings.pins && pins == nullptr) return Status::not_supported;
  all.addresses.reserved[address] = bytes;
  all.addresses.registered[host] = address;
  all.addresses.regions[address] =
      Region{.address = address,
             .bytes = bytes,
             .memory = static_cast<std::byte*>(memory),
             .access = is_read_only ? AccessFlags::read : AccessFlags::read_write,
             .device = current_contexts().back()->device,
             .is_host = true,
             .pins = std::move(pins)};
  return Status::success;
}

Status host_unregister(void* memory) {
  World& all = world();
  WorldLock lock(all.mutex);
  AddressBook& book = all.addresses;
  const auto host = reinterpret_cast<std::uintptr_t>(memory);
  if (!book.registered.contains(host)) return Status::host_memory_not_registered;
  wait_for_all(lock, all);
  const DeviceAddress address = book.registered.at(host);
  const std::size_t in_page = host % kPage;
  free_addresses(address - in_page, in_page + book.regions.at(address).bytes);
  book.reserved.erase(address);
  book.regions.erase(address);
  book.registered.erase(host);
  return Status::success;
}

Status host_get_device_address(DeviceAddress* address, void* memory, unsigned flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const auto host = reinterpret_cast<std::uintptr_t>(memory);
  const Region* const region = all.addresses.find_registered(host, 1);
  if (flags != 0 || region == nullptr) return Status::invalid_value;
  *address = region->address + (host - reinterpret_cast<std::uintptr_t>(region->memory));
  return Status::success;
}

Status pointer_get_attributes(unsigned count, PointerAttribute* attributes, void** values,
                              DeviceAddress address) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const Region* region = all.addresses.find(address, 1);
  if (region == nullptr) region = all.addresses.find_registered(address, 1);
  if (region != nullptr && region->is_host && address - region->address >= region->bytes)
    address = region->address + (address - reinterpret_cast<std::uintptr_t>(region->memory));
  for (unsigned at = 0; at < count; ++at)
    if (const Status status = tell(all, region, attributes[at], address, values[at]);
        status != Status::success)
      return status;
  return Status::success;
}

}  // namespace tendon::cuda_double
