// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/limits.hpp>
#include <vector>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

class StreamLink;

/// The tickets by which further connections join links of a listener. Each link has one, valid once
/// for each of its lanes. So there are never more tickets than links, and a link's ticket admits to
/// no other link.
///
/// Owns:    the tickets; no link.
/// Threads: thread-safe.
/// Errors:  those of the kernel's random numbers.
/// Blocks:  never.
/// Cost:    a walk over the links.
class LaneTickets {
 public:
  /// The ticket of `link`, for the lanes 0 to lane_count - 1.
  [[nodiscard]] Result<Nonce128> issue(const std::shared_ptr<StreamLink>& link,
                                       std::uint32_t lane_count);
  enum class Verdict : std::uint8_t {
    joins,    ///< `link` is the one that the lane joins
    unknown,  ///< no live link that may be joined has this ticket
    twice,    ///< that lane has joined already
    beyond,   ///< the link has no lane of this number
  };
  struct Taken {
    Verdict verdict = Verdict::unknown;
    std::shared_ptr<StreamLink> link{};  ///< null when unknown
  };
  /// `of`: the only link that the lane may join; null: the ticket alone selects the link.
  [[nodiscard]] Taken take(const Nonce128& ticket, std::uint32_t lane_index,
                           const std::shared_ptr<StreamLink>& of);

 private:
  struct Lanes {
    Nonce128 ticket;
    std::weak_ptr<StreamLink> link;
    std::uint32_t count;
    std::uint32_t joined = 0;  // a bit each
  };
  static_assert(kMaxStreamsPerLink <= 32);

  Mutex mutex_;
  std::vector<Lanes> links_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
