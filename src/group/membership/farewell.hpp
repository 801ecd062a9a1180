// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "group/membership/member_channel.hpp"

namespace tendon::v0::detail {

/// The channels of a member that has left, until its peers have all that it sent. A closed TCP
/// socket answers later data with a reset, and the kernel then drops unsent bytes. So the channels
/// stay open until each peer confirms that it has everything. A Context that closes waits for it,
/// for its `linger` at most.
///
/// Owns:    the channels, until they are closed.
/// Threads: thread-safe.
/// Errors:  none: a dead peer needs nothing.
/// Blocks:  never.
/// Cost:    a small message there and back.
class Farewell final : public Work {
 public:
  /// Closes the channels that can be closed now; the Context does the rest.
  static void say(ContextCore& context, std::vector<std::shared_ptr<MemberChannel>> channels);
  explicit Farewell(std::vector<std::shared_ptr<MemberChannel>> channels)
      : channels_(std::move(channels)) {}

  bool progress() override;
  [[nodiscard]] Unsent unsent() const override;

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<MemberChannel>> channels_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
