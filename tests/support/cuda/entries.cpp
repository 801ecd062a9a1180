// SPDX-License-Identifier: Apache-2.0
// The entry points that only tests call (double.hpp).
#include <unistd.h>

#include "support/cuda/calls.hpp"
#include "support/cuda/double.hpp"
#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

/// True if a test may call these here, as for those of the driver: not after a fork, nor before
/// cuInit.
bool is_usable(const World& all) { return all.process.load() == getpid(); }

std::byte* reach(DeviceAddress address, std::size_t bytes, AccessFlags needed) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const Region* const region = all.addresses.find(address, bytes);
  const bool is_allowed = region != nullptr && region->access != AccessFlags::none &&
                          (needed == AccessFlags::read || region->access == needed);
  if (is_allowed) return region->memory + (address - region->address);
  if (running_context() != nullptr) lose(all, *running_context(), Status::illegal_address);
  return nullptr;
}

}  // namespace
}  // namespace tendon::cuda_double

using namespace tendon::cuda_double;  // NOLINT(google-build-using-namespace)

void double_reset() { make_world_anew(); }

std::uint64_t double_calls(const char* name) {
  std::uint64_t count = 0;
  for (std::size_t at = 0; at < kFunctionCount; ++at)
    if (name == nullptr || exported_name(static_cast<Function>(at)) == name)
      count += world().calls[at].load();
  return count;
}

void double_fail(const char* name, int status, std::uint64_t passage) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  all.settings.failures[name] = Failure{status, passage};
}

void double_host_memory(int strict, int pins) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  all.settings.strict = strict != 0;
  all.settings.pins = pins != 0;
}

void double_lose(int device, int status) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  lose(all, all.contexts.at(static_cast<std::size_t>(device)), static_cast<Status>(status));
}

void double_deinitialise() { world().is_deinitialised.store(true); }

int double_launch(StreamHandle handle, void (*kernel)(void*), void* argument) {
  World& all = world();
  if (!is_usable(all)) return static_cast<int>(Status::not_initialized);
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream != nullptr) status = enqueue(lock, stream, [kernel, argument] { kernel(argument); });
  return static_cast<int>(status);
}

const void* double_reads(std::uint64_t address, std::size_t bytes) {
  return reach(address, bytes, AccessFlags::read);
}

void* double_writes(std::uint64_t address, std::size_t bytes) {
  return reach(address, bytes, AccessFlags::read_write);
}

void double_kernel(const char* name, void (*kernel)(void* const*),
                   const std::size_t* parameter_bytes, std::size_t parameter_count) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  all.kernels[name] = Kernel{[kernel](void* const* parameters, const Grid&) { kernel(parameters); },
                             {parameter_bytes, parameter_bytes + parameter_count}};
}

int double_begin_capture(StreamHandle handle, int mode) {
  World& all = world();
  if (!is_usable(all)) return static_cast<int>(Status::not_initialized);
  const std::lock_guard lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return static_cast<int>(status);
  if (stream == stream->context.legacy || stream->capture != nullptr)
    return static_cast<int>(Status::stream_capture_unsupported);
  auto capture = std::make_shared<Capture>();
  capture->mode = static_cast<CaptureMode>(mode);
  capture->begun_by = std::this_thread::get_id();
  capture->id = ++all.last_number;
  all.captures.push_back(capture);
  stream->capture = std::move(capture);
  return static_cast<int>(Status::success);
}

int double_end_capture(StreamHandle handle, std::size_t* captured) {
  World& all = world();
  if (!is_usable(all)) return static_cast<int>(Status::not_initialized);
  const std::lock_guard lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return static_cast<int>(status);
  const auto capture = stream->capture;
  if (capture == nullptr) return static_cast<int>(Status::invalid_value);
  for (const Context& context : all.contexts)
    for (const auto& each : context.streams)
      if (each->capture == capture) each->capture = nullptr;
  std::erase(all.captures, capture);
  *captured = capture->captured;
  return static_cast<int>(capture->status == CaptureStatus::active
                              ? Status::success
                              : Status::stream_capture_invalidated);
}

std::size_t double_pending(int device) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  std::size_t count = 0;
  for (const auto& places : all.contexts.at(static_cast<std::size_t>(device)).queues)
    count += places.size();
  return count;
}
