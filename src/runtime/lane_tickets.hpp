// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

class StreamLink;

/// The tickets by which further connections join links of a listener. Each link has one at a time,
/// good once, so there are never more of them than links, and no link's ticket goes for another's.
///
/// Threads: thread-safe.
class LaneTickets {
 public:
  /// The ticket of the next lane of `link`; an earlier one of the same link is none any more.
  [[nodiscard]] Result<Nonce128> issue(const std::shared_ptr<StreamLink>& link);
  /// The link that `ticket` was for; null when there is none, or it is gone.
  [[nodiscard]] std::shared_ptr<StreamLink> take(const Nonce128& ticket);

 private:
  struct Lane {
    Nonce128 ticket;
    std::weak_ptr<StreamLink> link;
  };

  Mutex mutex_;
  std::vector<Lane> lanes_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
