// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <tendon/core/completion.hpp>
#include <tendon/fabric/sample.hpp>
#include <utility>

#include "fabric/topics/subscriber_core.hpp"
#include "runtime/awaited.hpp"
#include "runtime/context_clients.hpp"

namespace tendon::v0::detail {

/// A recv_async(): its wait, and its completion.
///
/// Owns:    a share of its subscriber.
/// Threads: thread-safe.
/// Errors:  those of recv().
/// Blocks:  abandon(), while another thread takes the sample.
/// Cost:    progress(): a look at each feed.
class PostedSample final : public Awaited<Sample>, public Work {
 public:
  explicit PostedSample(std::shared_ptr<SubscriberCore> core)
      : Awaited(*core->context()), core_(std::move(core)) {}

  // Awaited
  void drive(Deadline deadline) override { core_->drive(*this, deadline); }
  void cancel() override { (void)core_->cancel(*this); }
  void abandon() override {
    (void)core_->cancel(*this);
    hand_back();
  }
  void left_over(Result<Sample> result) override {
    if (result) core_->put_back({.number = number_, .sample = *std::move(result)});
  }
  /// Called before finish() with a sample: its number among all that were taken.
  void came_as(std::uint64_t number) noexcept { number_ = number; }

  // Work
  bool progress() override { return core_->go_on(*this); }

 private:
  const std::shared_ptr<SubscriberCore> core_;
  std::uint64_t number_ = 0;
};

}  // namespace tendon::v0::detail
