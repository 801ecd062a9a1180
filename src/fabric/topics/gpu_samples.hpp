// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/publisher.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

#include "cuda/stream_work.hpp"
#include "fabric/samples/kept_sample.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// How long a wait of a publisher ignores SignalledPublish::GoOn.
inline constexpr std::chrono::milliseconds kGoOnSlice{50};

/// Brings samples of one publisher that lie on a GPU to the memory that its readers see. They are
/// copied once on the GPU for readers that can read there (a loan is not), and once to host memory
/// if others need it, before anybody sees them. For a later reader the second copy is made then.
///
/// Owns:    counts.
/// Threads: thread-safe.
/// Errors:  unsupported_device, not_contiguous, timeout, device_lost; cancelled if the program ends
///          the wait; invalid_argument for a stream under capture, before anything is done; those
///          of memory.
/// Blocks:  copy(): until the GPU has made the copy, or the deadline; at the first use of a GPU.
/// Cost:    that copy; two waits for the stream.
class GpuSamples {
 public:
  struct How {
    void* stream = kStreamPerThread;  ///< as the calling thread names it
    Deadline deadline;
    SignalledPublish::GoOn go_on;          ///< null: only the deadline ends the wait
    std::function<Result<void>()> usable;  ///< true while the publisher may continue
  };
  /// `key` appears in errors.
  GpuSamples(std::shared_ptr<ContextCore> context, std::string key)
      : context_(std::move(context)), key_(std::move(key)) {}

  /// Acquires a slot of the publish pool. When memory is short, samples before `kept_from` are
  /// dropped.
  using Acquire = std::function<Result<std::shared_ptr<const PublishedSlot>>(
      std::uint64_t size_bytes, std::uint64_t kept_from)>;
  /// Called when a late copy is over: in the device thread, under no lock. Call take_staged() then.
  using Staged = std::function<void(const KeptSample&, Result<std::shared_ptr<const KeptBody>>)>;
  /// Sets both callbacks; call it once, first. Any thread may call them, and they keep no publisher
  /// alive.
  void start(Acquire acquire, Staged staged) {
    acquire_ = std::move(acquire);
    staged_ = std::move(staged);
  }
  /// The links of a sample's readers, and the number of kept samples.
  struct Readers {
    std::vector<std::shared_ptr<Link>> links;
    std::uint32_t history = 1;
  };
  /// Keeps the same sample on its GPU, if a reader reads it there, and in host memory with its
  /// placement, if one does not, or there is none. Precondition: it has leaves elsewhere.
  [[nodiscard]] Result<std::shared_ptr<KeptSample>> copy(const TensorDict& sample, const How& how,
                                                         const Readers& readers);
  /// The message that shows a sample to this peer. Null: it lies only on its GPU; its copy to host
  /// memory is under way. Errors: unsupported_device, if there will be none. Under the publisher's
  /// lock.
  enum class Reads : std::uint8_t { where_it_lies, host_memory };
  [[nodiscard]] Result<const SharedMessage*> message_for(
      Link& link, const std::shared_ptr<const KeptSample>& sample, Reads reads);
  /// Handles the end of such a copy, under the publisher's lock. `later`: memory was short, and the
  /// next message_for() begins another one, after a pause. `with_others`: that pause has begun
  /// before.
  enum class Next : std::uint8_t { now, later, with_others };
  [[nodiscard]] Next take_staged(const KeptSample& sample,
                                 Result<std::shared_ptr<const KeptBody>> body);
  /// Ends the pause, under the publisher's lock.
  void end_pause() noexcept { is_paused_ = false; }
  /// Adds the copied samples, and the bytes of their leaves on a GPU.
  void count_in(PublisherStats& stats) const;

 private:
  struct Source {
    const TensorDict& sample;
    const std::shared_ptr<cuda::Gpu>& gpu;
    const How& how;
  };
  /// The readers that read it on its GPU, if `kept` has it then.
  enum class Who : std::uint8_t { none, some, all };
  [[nodiscard]] Result<Who> keep_there(const Source& source, const Readers& readers,
                                       KeptSample& kept);
  [[nodiscard]] static Result<bool> describe(const Source& source, SampleOnGpu& there);
  [[nodiscard]] bool has_room_for(std::uint64_t size_bytes, std::uint32_t history) const;
  [[nodiscard]] Result<std::shared_ptr<cuda::DeviceSlot>> slot_for(const Source& source,
                                                                   std::uint64_t size_bytes) const;
  [[nodiscard]] Result<Who> who_reads_there(const cuda::DeviceSlot& slot, const Readers& readers,
                                            const How& how) const;
  [[nodiscard]] Result<void> stage(const Source& source, const std::shared_ptr<KeptSample>& kept);
  [[nodiscard]] static Result<cuda::StreamWork> begin(const Source& source);
  /// `done` is what the GPU did.
  [[nodiscard]] Error explain(Error why, std::string_view done, std::uint64_t size_bytes) const;
  [[nodiscard]] Error ended_by_program() const;
  static void count(std::atomic<std::uint64_t>& samples, std::atomic<std::uint64_t>& bytes,
                    const SharedMessage& message);
  [[nodiscard]] Result<void> wait(cuda::StreamWork& work, const How& how) const;

  const std::shared_ptr<ContextCore> context_;
  const std::string key_;
  Acquire acquire_;
  Staged staged_;
  bool is_paused_ = false;  // under the publisher's lock
  std::atomic<std::uint64_t> count_d2h_{0};
  std::atomic<std::uint64_t> bytes_d2h_{0};
  std::atomic<std::uint64_t> count_d2d_{0};
  std::atomic<std::uint64_t> bytes_d2d_{0};
};

}  // namespace tendon::v0::detail
