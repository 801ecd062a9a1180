// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "session/token.hpp"

namespace tendon::v0::detail {

class TcpLink;

/// The tickets by which further connections join links of a listener. Each link has one at a time,
/// good once, so there are never more of them than links, and no link's ticket goes for another's.
///
/// Threads: thread-safe.
class LaneTickets {
 public:
  /// The ticket of the next lane of `link`; an earlier one of the same link is none any more.
  [[nodiscard]] Result<Token> issue(const std::shared_ptr<TcpLink>& link);
  /// The link that `ticket` was for; null when there is none, or it is gone.
  [[nodiscard]] std::shared_ptr<TcpLink> take(const Token& ticket);

 private:
  struct Lane {
    Token ticket;
    std::weak_ptr<TcpLink> link;
  };

  Mutex mutex_;
  std::vector<Lane> lanes_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
