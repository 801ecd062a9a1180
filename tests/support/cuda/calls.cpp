// SPDX-License-Identifier: Apache-2.0
#include "support/cuda/calls.hpp"

#include <unistd.h>

namespace tendon::cuda_double {
namespace {

bool needs_init(Function function) {
  switch (function) {
    case Function::init:
    case Function::driver_get_version:
    case Function::get_error_name:
    case Function::get_error_string:
      return false;
    default:
      return true;
  }
}

/// True if the function fails in a lost context. Others still work there: the driver describes its
/// devices, and lets threads leave the context.
bool needs_sound_context(Function function) {
  switch (function) {
    case Function::device_get_count:
    case Function::device_get:
    case Function::device_get_uuid:
    case Function::device_get_name:
    case Function::device_get_attribute:
    case Function::primary_context_retain:
    case Function::primary_context_release:
    case Function::context_push:
    case Function::context_pop:
    case Function::thread_exchange_capture_mode:
      return false;
    default:
      return needs_init(function);
  }
}

/// True if the function could wait for a stream or for the device. Such a call breaks captures.
bool is_unsafe_in_capture(Function function) {
  switch (function) {
    case Function::stream_query:
    case Function::stream_synchronize:
    case Function::event_query:
    case Function::memory_allocate:
    case Function::memory_free:
    case Function::memory_unmap:
    case Function::host_register:
    case Function::host_unregister:
    case Function::module_load:
      return true;
    default:
      return false;
  }
}

/// Breaks the captures that forbid the calling thread an unsafe call.
bool breaks_captures(World& world) {
  const CaptureMode mine = capture_mode();
  if (mine == CaptureMode::relaxed) return false;
  bool breaks = false;
  for (const auto& capture : world.captures) {
    const bool is_own = capture->begun_by == std::this_thread::get_id();
    const bool concerns = is_own ? capture->mode != CaptureMode::relaxed
                                 : mine == CaptureMode::global && capture->mode == mine;
    if (!concerns || capture->status != CaptureStatus::active) continue;
    capture->status = CaptureStatus::invalidated;
    breaks = true;
  }
  return breaks;
}

bool is_sticky(Status status) {
  const int number = static_cast<int>(status);
  return status == Status::ecc_uncorrectable || status == Status::nvlink_uncorrectable ||
         status == Status::contained || status == Status::launch_timeout ||
         status == Status::tensor_memory_leak || status == Status::mps_client_terminated ||
         status == Status::external_device || status == Status::unknown || number == 700 ||
         (709 <= number && number <= 710) || (714 <= number && number <= 719);
}

Status injected(World& world, Function function, std::uint64_t passage) {
  const auto found = world.settings.failures.find(std::string(exported_name(function)));
  if (found == world.settings.failures.end()) return Status::success;
  const Failure& failure = found->second;
  if (failure.passage != 0 && failure.passage != passage) return Status::success;
  const auto status = static_cast<Status>(failure.status);
  if (is_sticky(status) && !current_contexts().empty())
    lose(world, *current_contexts().back(), status);
  return status;
}

}  // namespace

std::string_view exported_name(Function function) {
  static constexpr std::array<std::string_view, kFunctionCount> kNames = {
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters) #exported,
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
  };
  return kNames[static_cast<std::size_t>(function)];
}

Status check_call(Function function) {
  World& all = world();
  const std::uint64_t passage = ++all.calls[static_cast<std::size_t>(function)];
  if (all.is_deinitialised.load()) return Status::deinitialized;
  // Takes no lock before this check: another thread of the parent may hold it for ever.
  const pid_t process = all.process.load();
  if (process != 0 && process != getpid() && function != Function::get_error_name &&
      function != Function::get_error_string)
    return Status::not_initialized;
  if (process == 0 && needs_init(function)) return Status::not_initialized;
  const std::lock_guard lock(all.mutex);
  if (needs_sound_context(function) && !current_contexts().empty() &&
      current_contexts().back()->lost)
    return *current_contexts().back()->lost;
  if (is_unsafe_in_capture(function) && breaks_captures(all))
    return Status::stream_capture_unsupported;
  return injected(all, function, passage);
}

}  // namespace tendon::cuda_double
