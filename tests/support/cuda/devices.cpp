// SPDX-License-Identifier: Apache-2.0
// The driver itself, its devices and their contexts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

Context* context_of(World& all, DeviceOrdinal device) {
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < all.contexts.size() ? &all.contexts[index] : nullptr;
}

bool is_device(DeviceOrdinal device) { return context_of(world(), device) != nullptr; }

ContextHandle handle_of(Context* context) { return reinterpret_cast<ContextHandle>(context); }

}  // namespace

Status init(unsigned flags) {
  if (flags != 0) return Status::invalid_value;
  World& all = world();
  if (all.settings.devices.empty()) return Status::no_device;
  all.process.store(getpid());
  return Status::success;
}

Status driver_get_version(int* version) {
  *version = world().settings.version;
  return Status::success;
}

Status device_get_count(int* count) {
  *count = static_cast<int>(world().settings.devices.size());
  return Status::success;
}

Status device_get(DeviceOrdinal* device, int ordinal) {
  if (!is_device(ordinal)) return Status::invalid_device;
  *device = ordinal;
  return Status::success;
}

Status device_get_uuid(Uuid* uuid, DeviceOrdinal device) {
  if (!is_device(device)) return Status::invalid_device;
  *uuid = world().settings.devices[static_cast<std::size_t>(device)];
  return Status::success;
}

Status device_get_name(char* name, int name_bytes, DeviceOrdinal device) {
  if (!is_device(device)) return Status::invalid_device;
  if (name_bytes <= 0) return Status::invalid_value;
  std::snprintf(name, static_cast<std::size_t>(name_bytes), "Double %d", device);
  return Status::success;
}

Status device_get_attribute(int* value, DeviceAttribute attribute, DeviceOrdinal device) {
  if (!is_device(device)) return Status::invalid_device;
  switch (attribute) {
    case DeviceAttribute::compute_capability_major:
      *value = 9;
      return Status::success;
    case DeviceAttribute::compute_capability_minor:
      *value = 0;
      return Status::success;
    case DeviceAttribute::unified_addressing:
    case DeviceAttribute::host_register:
    case DeviceAttribute::virtual_memory_management:
    case DeviceAttribute::posix_descriptors:
    case DeviceAttribute::read_only_host_register:
    case DeviceAttribute::stream_operations_of_64_bits:
      *value = 1;
      return Status::success;
  }
  return Status::invalid_value;
}

Status primary_context_retain(ContextHandle* context, DeviceOrdinal device) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  Context* const found = context_of(all, device);
  if (found == nullptr) return Status::invalid_device;
  ++found->retained;
  *context = handle_of(found);
  return Status::success;
}

Status primary_context_release(DeviceOrdinal device) {
  World& all = world();
  WorldLock lock(all.mutex);
  Context* const found = context_of(all, device);
  if (found == nullptr) return Status::invalid_device;
  if (found->retained == 0) return Status::invalid_context;
  if (--found->retained > 0) return Status::success;
  if (!found->lost) wait_for_all(lock, all);
  const auto streams = found->streams;
  for (const auto& stream : streams) close_stream(all, stream);
  found->legacy = nullptr;
  return Status::success;
}

Status context_push(ContextHandle context) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  for (Context& each : all.contexts) {
    if (handle_of(&each) != context || each.retained == 0) continue;
    current_contexts().push_back(&each);
    return Status::success;
  }
  return Status::invalid_context;
}

Status context_pop(ContextHandle* context) {
  auto& current = current_contexts();
  if (current.empty()) return Status::invalid_context;
  if (context != nullptr) *context = handle_of(current.back());
  current.pop_back();
  return Status::success;
}

}  // namespace tendon::cuda_double
