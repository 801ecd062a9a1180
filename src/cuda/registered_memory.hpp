// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/core/result.hpp>
#include <utility>

#include "cuda/device_thread.hpp"
#include "cuda/primary_context.hpp"

namespace tendon::v0::detail::cuda {

/// Memory of the host that a GPU reads and writes itself, by an address of its own.
///
/// Owns:    a share of the memory; its registration, which keeps the pages in memory.
/// Threads: the device thread calls create(). The last share may be dropped anywhere, once the GPU
///          has done all work that was enqueued on the memory: the device thread releases it.
/// Errors:  resource_exhausted, device_lost; those of the driver.
/// Blocks:  never.
/// Cost:    a registration stops every launch of the process, 50 us and more for each MiB: only for
///          little memory.
class RegisteredMemory {
 public:
  /// `owner` keeps the memory, which no other registration has at this address. `flags` are those
  /// of the driver.
  [[nodiscard]] static Result<std::shared_ptr<RegisteredMemory>> create(
      std::shared_ptr<PrimaryContext> context, DeviceThread& thread,
      std::shared_ptr<const void> owner, std::byte* memory, std::size_t size_bytes,
      unsigned flags = kRegisterMapped);
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  /// The GPU's address of the first byte.
  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  /// True if the GPU with this context knows it by address().
  [[nodiscard]] bool is_of(const PrimaryContext& context) const noexcept {
    return context_.get() == &context;
  }

 private:
  RegisteredMemory(std::shared_ptr<PrimaryContext> context, std::shared_ptr<const void> owner,
                   std::byte* memory)
      : context_(std::move(context)), owner_(std::move(owner)), memory_(memory) {}
  ~RegisteredMemory();

  const std::shared_ptr<PrimaryContext> context_;
  const std::shared_ptr<const void> owner_;
  std::byte* const memory_;
  bool is_registered_ = false;
  DeviceAddress address_ = 0;
};

}  // namespace tendon::v0::detail::cuda
