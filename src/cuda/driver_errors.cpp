// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_errors.hpp"

namespace tendon::v0::detail::cuda {
namespace {

ErrorCode code_of(Status status) {
  if (loses_context(status)) return ErrorCode::device_lost;
  switch (status) {
    case Status::not_initialized:
      return ErrorCode::forked;  // it was initialised, but in the parent
    case Status::out_of_memory:
      return ErrorCode::resource_exhausted;
    case Status::no_device:
    case Status::invalid_device:
    case Status::device_unavailable:
      return ErrorCode::unsupported_device;
    case Status::stub_library:
    case Status::not_supported:
    case Status::system_driver_mismatch:
      return ErrorCode::not_supported;
    case Status::not_permitted:
      return ErrorCode::permission_denied;
    case Status::stream_capture_unsupported:
    case Status::stream_capture_invalidated:
    case Status::stream_capture_implicit:
    case Status::captured_event:
      return ErrorCode::invalid_argument;
    default:
      return ErrorCode::system;
  }
}

/// Advice for the user, if the driver's name for its answer does not say what to do.
std::string_view advice(Status status) {
  if (status == Status::unknown)
    return "; the driver does not say why: nvidia-smi shows whether its kernel modules are loaded";
  switch (status) {
    case Status::not_initialized:
      return "; a process that was forked after its parent had used CUDA cannot use it: fork "
             "before the first use, or spawn";
    case Status::illegal_address:
    case Status::launch_timeout:
    case Status::assert_failed:
    case Status::hardware_stack_error:
    case Status::illegal_instruction:
    case Status::misaligned_address:
    case Status::invalid_address_space:
    case Status::invalid_pc:
    case Status::launch_failed:
    case Status::tensor_memory_leak:
      return "; a kernel that this process launched before is at fault: compute-sanitizer finds it";
    case Status::ecc_uncorrectable:
    case Status::nvlink_uncorrectable:
    case Status::contained:
      return "; nvidia-smi -q and the Xid in dmesg say what failed in the GPU or its links";
    case Status::no_device:
      return "; CUDA_VISIBLE_DEVICES may hide it: nvidia-smi shows which there are";
    case Status::stub_library:
      return "; this library is only for linking: let TENDON_CUDA_LIBRARY name the driver's own";
    case Status::system_driver_mismatch:
      return "; the driver of the kernel is another one than libcuda.so.1: restart the machine "
             "after an update of the driver";
    case Status::out_of_memory:
      return "; free memory of the device, or use a smaller device pool";
    case Status::stream_capture_unsupported:
    case Status::stream_capture_invalidated:
    case Status::stream_capture_implicit:
      return "; a stream is being captured: end the capture first";
    default:
      return "";
  }
}

}  // namespace

bool loses_context(Status status) noexcept {
  switch (status) {
    case Status::ecc_uncorrectable:
    case Status::nvlink_uncorrectable:
    case Status::contained:
    case Status::illegal_address:
    case Status::launch_timeout:
    case Status::context_is_destroyed:
    case Status::assert_failed:
    case Status::hardware_stack_error:
    case Status::illegal_instruction:
    case Status::misaligned_address:
    case Status::invalid_address_space:
    case Status::invalid_pc:
    case Status::launch_failed:
    case Status::tensor_memory_leak:
    case Status::mps_client_terminated:
    // A call on such a device may fail so and lose nothing, but Tendon makes none.
    case Status::external_device:
    case Status::unknown:
      return true;
    default:
      return false;
  }
}

bool is_released(Status status) noexcept {
  return status == Status::success || status == Status::deinitialized || loses_context(status);
}

std::string status_text(const DriverTable& table, Status status) {
  const std::string number = std::to_string(static_cast<int>(status));
  // Both return an error for a number that a driver does not know.
  const char* name = nullptr;
  const char* text = nullptr;
  if (table.get_error_name == nullptr || table.get_error_string == nullptr ||
      table.get_error_name(status, &name) != Status::success || name == nullptr)
    return "error " + number + " of CUDA";
  if (table.get_error_string(status, &text) != Status::success || text == nullptr)
    return std::string(name) + " (" + number + ")";
  return std::string(name) + " (" + number + ", " + text + ")";
}

Error driver_error(const DriverTable& table, std::string_view where, std::string_view what,
                   Status status) {
  return Error{code_of(status), where,
               std::string(what) + ": " + status_text(table, status) + std::string(advice(status))};
}

Result<void> driver_result(const DriverTable& table, std::string_view where, std::string_view what,
                           Status status) {
  if (status == Status::success) return {};
  return driver_error(table, where, what, status);
}

Error forked_error(std::string_view where) {
  return Error{ErrorCode::forked, where,
               "this process was forked after its parent had used CUDA, which no child can go "
               "on with: fork before the first use, or spawn"};
}

}  // namespace tendon::v0::detail::cuda
