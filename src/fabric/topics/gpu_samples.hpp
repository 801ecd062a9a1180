// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/publisher.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "cuda/stream_work.hpp"
#include "fabric/samples/kept_sample.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// How long a wait of a publisher takes no notice of SignalledPublish::GoOn.
inline constexpr std::chrono::milliseconds kGoOnSlice{50};

/// How the samples of one publisher that lie on a GPU reach the memory that its readers see: by one
/// copy, before anybody is shown them.
///
/// Owns:    counts.
/// Threads: thread-safe.
/// Errors:  unsupported_device, not_contiguous, timeout, device_lost; cancelled where the program
///          ends the wait; invalid_argument for a stream that is being captured, before anything is
///          done; those of memory.
/// Blocks:  copy(): until the GPU has made the copy, or the deadline; at the first use of a GPU.
/// Cost:    that copy; two waits for the stream.
class GpuSamples {
 public:
  struct How {
    void* stream = kStreamPerThread;  ///< as the calling thread names it
    Deadline deadline;
    SignalledPublish::GoOn go_on;          ///< null: nothing ends the wait but the deadline
    std::function<Result<void>()> usable;  ///< may the publisher go on?
    AcquireSlot acquire;
  };
  /// `key`: of errors.
  GpuSamples(std::shared_ptr<ContextCore> context, std::string key)
      : context_(std::move(context)), key_(std::move(key)) {}

  /// The same sample in host memory, with its placement. Precondition: it has leaves elsewhere.
  [[nodiscard]] Result<std::shared_ptr<KeptSample>> copy(const TensorDict& sample, const How& how);
  /// Samples that were copied, and the bytes of their leaves on a GPU.
  [[nodiscard]] std::uint64_t copied_count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t copied_bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] Result<void> wait(cuda::StreamWork& work, const How& how) const;

  const std::shared_ptr<ContextCore> context_;
  const std::string key_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace tendon::v0::detail
