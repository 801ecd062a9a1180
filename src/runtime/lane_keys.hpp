// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "secure/tls_handshake.hpp"

namespace tendon::v0::detail {

class StreamLink;

/// The keys by which further connections join the sessions of a listener's secure links. A lane
/// proves that its other end is that of the session, and its ticket (LaneTickets) is valid once.
///
/// Owns:    the keys of live links; each is wiped when its link drops its follower().
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a walk over the links.
class LaneKeys {
 public:
  LaneKeys() : table_(std::make_shared<Table>()) {}

  void add(const secure::TlsSession& session, const std::shared_ptr<StreamLink>& link);
  /// The link whose session a connection with this identity has joined. Null: the link has ended
  /// since, or the identity is not that of a lane.
  [[nodiscard]] std::shared_ptr<StreamLink> link_of(std::string_view identity) const;
  /// Returns a function that takes each later session of the link, because lanes join the latest
  /// one. When its last copy is destroyed, the key is removed from the table.
  [[nodiscard]] std::function<void(const secure::TlsSession&)> follower(
      const secure::TlsSession& first) const;
  /// Returns a function that searches this table while the table lives.
  [[nodiscard]] secure::FindSession finder() const;

 private:
  struct Lane {
    std::string session_id;
    secure::Secret<kSharedKeyBytes> key;
    std::weak_ptr<StreamLink> link;
  };
  struct Table {
    Mutex mutex;
    std::vector<Lane> lanes TENDON_GUARDED_BY(mutex);
  };
  /// The place of one link in the table.
  class Place {
   public:
    Place(std::shared_ptr<Table> table, std::string session_id)
        : table_(std::move(table)), session_id_(std::move(session_id)) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    void replace(const secure::TlsSession& next);

   private:
    const std::shared_ptr<Table> table_;
    std::string session_id_;  // the latest; guarded by the table's mutex
  };

  std::shared_ptr<Table> table_;
};

}  // namespace tendon::v0::detail
