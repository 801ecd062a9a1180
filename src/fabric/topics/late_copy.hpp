// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tendon/core/result.hpp>
#include <vector>

#include "channel/to_host.hpp"
#include "cuda/stream_work.hpp"
#include "fabric/samples/kept_sample.hpp"

namespace tendon::v0::detail {

/// The copy to host memory of a sample that lies in its slot on a GPU, for a reader that arrived
/// after its publishing. The device thread makes it on the GPU's own stream, because no thread that
/// shows samples may call the driver. It does other work between pieces.
///
/// Owns:    the sample, until it is over.
/// Threads: begin() in any; the rest is the device thread's.
/// Errors:  those of `acquire` and of the driver.
/// Blocks:  never.
/// Cost:    the device thread is busy for as long as the copies take.
class LateCopy : public std::enable_shared_from_this<LateCopy> {
 public:
  using OnOver = std::function<void(Result<std::shared_ptr<const KeptBody>>)>;
  /// `acquire` and `on_over` are called in the device thread, under no lock.
  [[nodiscard]] static Result<void> begin(std::shared_ptr<const KeptSample> sample,
                                          AcquireSlot acquire, OnOver on_over);

 private:
  LateCopy(std::shared_ptr<const KeptSample> sample, AcquireSlot acquire, OnOver on_over)
      : sample_(std::move(sample)), acquire_(std::move(acquire)), on_over_(std::move(on_over)) {}
  void go_on();
  [[nodiscard]] Result<void> step();
  [[nodiscard]] Result<void> make_room();
  void finish(Result<void> result);

  std::shared_ptr<const KeptSample> sample_;
  const AcquireSlot acquire_;
  const OnOver on_over_;
  std::shared_ptr<KeptBody> body_;
  std::optional<cuda::StreamWork> work_;
  std::vector<GpuCopy> copies_;
  std::size_t copied_count_ = 0;
};

}  // namespace tendon::v0::detail
