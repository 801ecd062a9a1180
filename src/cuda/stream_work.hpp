// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

#include "cuda/gather_table.hpp"
#include "cuda/gpu.hpp"
#include "cuda/stream_name.hpp"

namespace tendon::v0::detail::cuda {

/// Work that is enqueued on one stream of a GPU, and the memory that it needs until the GPU has
/// done it. One thread enqueues all of it: the one that called begin().
///
/// Owns:    the owners of keep(), until the GPU has done all work that was enqueued up to the end
///          of this object, or the context is lost. The device thread drops them; if nothing was
///          enqueued here, the end of this object does so at once.
/// Threads: one at a time.
/// Errors:  invalid_argument: the stream belongs to another context, or is being captured;
///          device_lost; forked; those of the driver.
/// Blocks:  only wait(), until its deadline. A copy to or from host memory that is not registered
///          blocks in the driver.
/// Cost:    about 1 us for a copy, 4 us for a launch, 2 us for the end; the device thread polls an
///          event.
///
/// The end never drops anything early. If no event can be recorded, the device thread tries again
/// when a capture of the stream has ended, and then synchronises the stream. If even that fails in
/// a sound context, the memory stays to the end of the process, which is logged. In a forked child
/// it is dropped at once and no call reaches the driver: its owners handle that.
class StreamWork {
 public:
  /// `stream` is the calling thread's name; it must exist until the GPU has done the work. `where`
  /// appears in errors, a literal.
  [[nodiscard]] static Result<StreamWork> begin(std::shared_ptr<Gpu> gpu, StreamHandle stream,
                                                std::string_view where);
  StreamWork(StreamWork&&) noexcept = default;
  StreamWork& operator=(StreamWork&& other) noexcept;
  ~StreamWork();

  [[nodiscard]] Gpu& gpu() const noexcept { return *gpu_; }
  /// Copies between any addresses that the GPU knows, of its memory or of the host. No bytes:
  /// nothing is enqueued. From and to RegisteredSlots it is a copy for each part, which are
  /// registered after the work.
  [[nodiscard]] Result<void> copy(DeviceAddress destination, DeviceAddress source,
                                  std::uint64_t bytes);
  /// Writes `value` to 8 bytes of registered memory once all earlier copies are done, so that a
  /// host that reads it may read them.
  [[nodiscard]] Result<void> write_word(DeviceAddress word, std::uint64_t value);
  /// Packs pieces of memory of the GPU by its gather kernel, as many in each launch as it takes.
  [[nodiscard]] Result<void> gather(FunctionHandle kernel, std::span<const GatherEntry> pieces);
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }
  /// Counts all present work of the stream as enqueued here.
  void follow_stream() noexcept { has_work_ = true; }

  /// Waits until the GPU has done all work that the stream has now, also that of others. A deadline
  /// that has passed asks whether it has. After a timeout the memory stays in use.
  [[nodiscard]] Result<void> wait(Deadline deadline);
  /// The same, but calls `told` in the device thread, once. After an error of this call it is not
  /// called.
  [[nodiscard]] Result<void> then(std::function<void(Result<void>)> told);

 private:
  StreamWork(std::shared_ptr<Gpu> gpu, StreamName stream, std::string_view where);
  [[nodiscard]] Result<void> enqueue_copy(DeviceAddress destination, DeviceAddress source,
                                          std::uint64_t bytes);
  /// Success if the GPU has done all.
  [[nodiscard]] Result<void> ask() const;
  [[nodiscard]] Error late() const;
  void end() noexcept;

  std::shared_ptr<Gpu> gpu_;  // empty after a move
  StreamName stream_;
  std::string_view where_;
  std::vector<std::shared_ptr<const void>> kept_;
  bool has_work_ = false;
};

}  // namespace tendon::v0::detail::cuda
