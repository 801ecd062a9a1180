// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>

#include "core/fork_guard.hpp"
#include "cuda/device_thread.hpp"
#include "cuda/driver.hpp"

namespace tendon::v0::detail::cuda {

/// A GPU as this process uses it: its primary context, which frameworks share.
///
/// Owns:    a reference of the context.
/// Threads: thread-safe, except for retain(): the device thread, which also releases the context
///          when the last share is dropped, wherever that is.
/// Errors:  unsupported_device: no such GPU; device_lost; forked.
/// Blocks:  retain(): for the driver, once some 200 ms.
/// Cost:    about 0.1 us to make it current, and to undo that.
class PrimaryContext {
 public:
  /// The GPU that the driver numbers `ordinal`, which depends on CUDA_VISIBLE_DEVICES.
  [[nodiscard]] static Result<std::shared_ptr<PrimaryContext>> retain(Driver& driver,
                                                                      DeviceThread& thread,
                                                                      int ordinal);
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  [[nodiscard]] const DriverTable& table() const noexcept { return driver_.table(); }
  [[nodiscard]] ContextHandle handle() const noexcept { return handle_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] Device device() const noexcept { return {DeviceKind::cuda, ordinal_}; }
  /// Names the GPU to other processes, even if each numbers the GPUs differently.
  [[nodiscard]] const Uuid& uuid() const noexcept { return uuid_; }

  /// The error of a call that answered `status`; a sticky one is noted. `what` names the call and
  /// its object.
  [[nodiscard]] Result<void> check(Status status, std::string_view where, std::string_view what);
  /// The first sticky answer, from which on nothing works here; `success` before.
  [[nodiscard]] Status loss() const noexcept { return loss_.load(std::memory_order_acquire); }
  /// Checks that calls can be made: else `device_lost`, which names the first sticky answer, or
  /// `forked`.
  [[nodiscard]] Result<void> check_usable(std::string_view where) const;
  /// Ends a call that releases something: a refusal of the driver is logged.
  void note_release(Status status, std::string_view what) const;
  [[nodiscard]] bool is_of_this_process() const noexcept { return process_ == process_number(); }

  /// Makes the context current in a scope of one thread, whatever is current outside, and lets the
  /// thread make calls that captures of others forbid.
  ///
  /// Errors: made() says why it is not current.
  class Current {
   public:
    explicit Current(PrimaryContext& context);
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current();
    [[nodiscard]] const Result<void>& made() const noexcept { return made_; }
    /// The driver's answer; is_released() tells from it whether anything still runs in the context.
    [[nodiscard]] Status status() const noexcept { return status_; }

   private:
    PrimaryContext& context_;
    Status status_ = Status::not_initialized;  // in a forked child
    CaptureMode mode_ = CaptureMode::relaxed;  // the thread has the other one: they are exchanged
    Result<void> made_;
  };

 private:
  PrimaryContext(Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  ~PrimaryContext();

  Driver& driver_;
  const int ordinal_;
  const std::uint32_t process_ = process_number();
  DeviceOrdinal number_ = 0;  // of the driver
  Uuid uuid_{};
  ContextHandle handle_ = nullptr;
  std::atomic<Status> loss_{Status::success};
};

}  // namespace tendon::v0::detail::cuda
