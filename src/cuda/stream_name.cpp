// SPDX-License-Identifier: Apache-2.0
#include "cuda/stream_name.hpp"

#include <atomic>

namespace tendon::v0::detail::cuda {
namespace {

/// The number of the calling thread. The system may reuse its own ids for a later thread.
std::uint64_t thread_number() {
  static constinit std::atomic<std::uint64_t> last{0};
  static thread_local const std::uint64_t kMine = ++last;
  return kMine;
}

StreamHandle handle_of(std::uintptr_t number) { return reinterpret_cast<StreamHandle>(number); }

}  // namespace

StreamName::StreamName(StreamHandle handle) : handle_(handle), thread_(thread_number()) {}

StreamHandle StreamName::here() const {
  return is_replaced_here() ? handle_of(kLegacyStream) : handle_;
}

bool StreamName::is_replaced_here() const {
  return handle_ == handle_of(kPerThreadStream) && thread_ != thread_number();
}

Status look_at_capture(const DriverTable& table, StreamHandle stream) {
  CaptureStatus capture = CaptureStatus::none;
  const Status status =
      table.stream_get_capture_info(stream, &capture, nullptr, nullptr, nullptr, nullptr);
  if (status == Status::stream_capture_implicit) return Status::not_ready;
  if (status != Status::success) return status;
  return capture == CaptureStatus::none ? Status::success : Status::not_ready;
}

}  // namespace tendon::v0::detail::cuda
