// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "cuda/device_thread.hpp"
#include "cuda/primary_context.hpp"

namespace tendon::v0::detail::cuda {

/// One allocation on a GPU, mapped at an address of this process: its own, which it alone may
/// write, or a peer's, which it may only read.
///
/// Owns:    a share of the memory, which lasts until the last process unmaps it, even after its
///          owner's death; its own memory also has the descriptor for peers.
/// Threads: the device thread makes segments. The last share may be dropped anywhere, once the GPU
///          has done all work that was enqueued on the memory, because the driver unmaps it under
///          waiting work. The device thread releases it.
/// Errors:  resource_exhausted, device_lost; protocol_violation if passed memory is not as the peer
///          announced. A process that cannot map the memory of this peer gets the driver's error.
/// Blocks:  for the driver: about 1 ms to make one, 0.2 ms to import.
class DeviceSegment {
 public:
  /// `size_bytes` must be a multiple of kLargeSlotBytes.
  [[nodiscard]] static Result<std::shared_ptr<DeviceSegment>> create(
      std::shared_ptr<PrimaryContext> context, DeviceThread& thread, std::uint64_t size_bytes);
  /// `size_bytes` is the peer's word, at most its cap. The driver tells the kind of the memory, its
  /// GPU, and whether it has the size; no other word of the peer is believed.
  [[nodiscard]] static Result<std::shared_ptr<DeviceSegment>> import(
      std::shared_ptr<PrimaryContext> context, DeviceThread& thread, const OwnedFd& descriptor,
      std::uint64_t size_bytes);
  DeviceSegment(const DeviceSegment&) = delete;
  DeviceSegment& operator=(const DeviceSegment&) = delete;

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] PrimaryContext& context() const noexcept { return *context_; }
  /// The descriptor for peers; an imported segment has none.
  [[nodiscard]] const OwnedFd& descriptor() const noexcept { return descriptor_; }

 private:
  DeviceSegment(std::shared_ptr<PrimaryContext> context, std::uint64_t size_bytes)
      : context_(std::move(context)), size_bytes_(size_bytes) {}
  ~DeviceSegment();
  [[nodiscard]] static std::shared_ptr<DeviceSegment> make(std::shared_ptr<PrimaryContext> context,
                                                           DeviceThread& thread,
                                                           std::uint64_t size_bytes);
  [[nodiscard]] Result<void> allocate();
  [[nodiscard]] Result<void> take_in(const OwnedFd& descriptor);
  [[nodiscard]] Result<void> map(AccessFlags access);
  [[nodiscard]] Result<void> check(Status status, std::string_view call) const;
  /// The same for memory that a peer passed, which may be anything.
  [[nodiscard]] Result<void> check_passed(Status status, std::string_view call) const;

  const std::shared_ptr<PrimaryContext> context_;
  const std::uint64_t size_bytes_;
  MemoryHandle handle_ = 0;
  DeviceAddress address_ = 0;
  bool is_mapped_ = false;
  OwnedFd descriptor_;
};

}  // namespace tendon::v0::detail::cuda
