// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/error.hpp>

#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

namespace cuda {
class Gpu;
}

/// The part of a message that lies on a GPU, in memory of its peer. The message is there before the
/// bytes are: the peer's GPU says when.
///
///   under way -> arrived     its word has come
///             -> incomplete  the link ended before, or the peer's GPU was lost
///
/// Owns:    the slot of the peer, which returns when the last share is dropped: work of the GPU
///          that reads it keeps one.
/// Threads: arrived() and is_incomplete(): the link's receive lock. The rest is constant once it
///          has arrived.
/// Errors:  failure().
/// Blocks:  never.
/// Cost:    arrived(): a load.
class DeviceBody {
 public:
  DeviceBody() = default;
  DeviceBody(const DeviceBody&) = delete;
  DeviceBody& operator=(const DeviceBody&) = delete;
  virtual ~DeviceBody() = default;

  [[nodiscard]] virtual bool arrived() noexcept = 0;
  /// Its bytes will not be there.
  [[nodiscard]] virtual bool is_incomplete() const noexcept = 0;
  [[nodiscard]] virtual const DevicePart& part() const noexcept = 0;

  // Precondition of these: it has arrived.
  /// Why it cannot be read here; null: it can.
  [[nodiscard]] virtual const Error* failure() const noexcept = 0;
  /// Precondition of both: failure() is null.
  [[nodiscard]] virtual const std::shared_ptr<cuda::Gpu>& gpu() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t address() const noexcept = 0;
};

}  // namespace tendon::v0::detail
