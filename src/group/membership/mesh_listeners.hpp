// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "group/membership/member_channel.hpp"
#include "group/membership/mesh_place.hpp"

namespace tendon::v0::detail {

/// One group's ear on the mesh. The receive lock of the peer's link is held during every call.
class MeshListener {
 public:
  virtual ~MeshListener() = default;
  virtual void on_inbound(MeshPlace place, InboundMessage&& inbound) = 0;
  /// `channel` leads to the lost process. Another one may have taken its place since.
  virtual void on_lost(MeshPlace place, const MemberChannel& channel, const Error& error,
                       Absence how) = 0;
};

/// Routes a message to its group: one that is here, one that is made elsewhere and not yet here,
/// whose words wait, or one that this member has left.
///
/// Owns:    the words that wait.
/// Threads: none; its owner has a lock.
/// Errors:  Fate::flood, for words that do not fit.
/// Blocks:  never.
/// Cost:    a look-up by group.
class MeshListeners {
 public:
  struct Early {
    MeshPlace place;
    InboundMessage inbound;
  };
  enum class Fate : std::uint8_t {
    heard,   ///< for `listener`
    kept,    ///< until its group is here
    nobody,  ///< nobody will take it
    flood,   ///< likewise: more words wait than fit
  };
  struct Route {
    Fate fate = Fate::nobody;
    std::shared_ptr<MeshListener> listener;
  };

  /// Returns the words that arrived for it before.
  [[nodiscard]] std::vector<Early> add(std::uint64_t group, std::weak_ptr<MeshListener> listener);
  /// Drops further words of `staying`, by place, to the group until they have left it too.
  void remove(std::uint64_t group, const MemberMask& staying);
  /// Forgets a place: it sends nothing more to groups that were left.
  void forget_place(MeshPlace place);
  /// Takes the message if it is kept.
  [[nodiscard]] Route route(MeshPlace place, InboundMessage&& inbound);
  [[nodiscard]] bool empty() const { return listeners_.empty(); }
  [[nodiscard]] std::vector<std::shared_ptr<MeshListener>> all() const;

  static constexpr std::size_t kMostEarly = 65536;
  static constexpr std::uint64_t kMostEarlyBytes = std::uint64_t{32} << 20;

 private:
  std::map<std::uint64_t, std::weak_ptr<MeshListener>> listeners_;
  std::map<std::uint64_t, std::vector<Early>> early_;
  std::size_t early_count_ = 0;
  std::uint64_t early_bytes_ = 0;
  std::map<std::uint64_t, MemberMask> removed_;  // groups: the members that have not left them yet
};

}  // namespace tendon::v0::detail
