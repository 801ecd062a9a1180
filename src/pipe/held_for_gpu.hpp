// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/gpu_answer.hpp"
#include "channel/placed_layout.hpp"
#include "pipe/gpu_source.hpp"
#include "runtime/context_core.hpp"
#include "transport/shm/device_fill.hpp"

namespace tendon::v0::detail {

/// A batch that may only travel on its GPU, of a caller that does not wait for the peer's answer or
/// for room in the pool. Once the caller's stream has done its earlier work, and the batch is the
/// next one of its sender, the device thread tries to copy it to a slot.
///
///   behind the caller's stream -> its sender asks for a try, again -> over: a fill, or the error
///
/// Owns:    the batch, until it is over; then the fill.
/// Threads: thread-safe; take() once, after it is over.
/// Errors:  not_direct, message_too_large; those of the driver.
/// Blocks:  never.
/// Cost:    an event; a job of the device thread for each try; a timer while it is tried.
class HeldForGpu final : public Timed, public std::enable_shared_from_this<HeldForGpu> {
 public:
  struct What {
    TensorDict batch;
    GpuSource source;
    PlacedLayout layout;
    std::weak_ptr<ContextCore> context;
    std::weak_ptr<Link> link;
    std::function<void()> tell;  ///< makes its sender look at it: called in any thread
  };
  explicit HeldForGpu(What what) : what_(std::move(what)) {}
  HeldForGpu(const HeldForGpu&) = delete;
  HeldForGpu& operator=(const HeldForGpu&) = delete;
  /// Owners of memory on a GPU may call the driver, which is the device thread's task.
  ~HeldForGpu() override;

  /// `stream` belongs to the calling thread.
  [[nodiscard]] Result<void> begin(void* stream);
  [[nodiscard]] const GpuAnswer& answer() const noexcept { return answer_; }
  /// Tries again, because the batch is the next one: there may be an answer, or room. If it is not
  /// over then, its sender is told to ask again when copies under way have ended, and after kPause.
  /// Nothing is tried before its stream is done, which the sender is told too.
  void try_again();
  /// Precondition: the answer is a success.
  [[nodiscard]] std::shared_ptr<DeviceFill> take() { return std::move(fill_); }
  [[nodiscard]] const GpuSource& source() const noexcept { return what_.source; }
  [[nodiscard]] const PlacedLayout& layout() const noexcept { return what_.layout; }

  // Timed
  void on_time() override;

 private:
  // Slots that are freed in this process notify nobody.
  static constexpr std::chrono::milliseconds kPause{5};
  enum class Try : std::uint8_t { first, second };
  enum class Tries : std::uint8_t { behind_stream, none, one, one_and_another };
  void post(Try which);
  void attempt(Try which);
  [[nodiscard]] Result<bool> fill();
  void finish(Result<void> result);

  What what_;
  std::atomic<Tries> tries_{Tries::behind_stream};
  std::atomic<bool> is_timed_{false};
  std::shared_ptr<DeviceFill> fill_;
  GpuAnswer answer_;
};

}  // namespace tendon::v0::detail
