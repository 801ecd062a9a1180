// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "fabric/ways/knocks.hpp"

namespace tendon::v0::detail {

/// Says whether the peer that is knocked at failed before.
enum class KnockKind : std::uint8_t { first, again };

/// The peers that are knocked at, and the number of their addresses.
///
/// Owns:    shares of the peers.
/// Threads: its owner's lock is held.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look into a tree.
template <class Peer>
class KnocksUnderWay {
 public:
  /// The number of addresses, of both kinds together, and of one kind.
  [[nodiscard]] std::size_t count() const noexcept { return first_ + again_; }
  [[nodiscard]] std::size_t count(KnockKind kind) const noexcept {
    return kind == KnockKind::first ? first_ : again_;
  }
  void add(Knocks::Number number, std::shared_ptr<Peer> peer, KnockKind kind,
           std::size_t addresses) {
    counted(kind) += addresses;
    asked_.emplace(number, Asked{std::move(peer), kind, addresses});
  }
  /// Null: no peer is knocked at under this number.
  [[nodiscard]] std::shared_ptr<Peer> take(Knocks::Number number) {
    const auto found = asked_.find(number);
    if (found == asked_.end()) return nullptr;
    const Asked asked = std::move(found->second);
    asked_.erase(found);
    counted(asked.kind) -= asked.addresses;
    return asked.peer;
  }
  /// Forgets the peers. The counts stay, as their addresses are knocked at until the knocks stop.
  void forget_peers() { asked_.clear(); }

 private:
  struct Asked {
    std::shared_ptr<Peer> peer;
    KnockKind kind = KnockKind::first;
    std::size_t addresses = 0;
  };
  [[nodiscard]] std::size_t& counted(KnockKind kind) noexcept {
    return kind == KnockKind::first ? first_ : again_;
  }

  std::map<Knocks::Number, Asked> asked_;
  std::size_t first_ = 0;
  std::size_t again_ = 0;
};

}  // namespace tendon::v0::detail
