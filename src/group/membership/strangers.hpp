// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/membership/member_channel.hpp"

namespace tendon::v0::detail {

/// Channels that were opened to this member and have no place in its mesh. They have not named
/// their member, or wait for the place of a process that is not known to be dead. A newcomer beyond
/// the limit replaces the oldest: a process that means to join says so at once.
///
/// Owns:    a share of each channel.
/// Threads: none; its owner has a lock.
/// Errors:  none; the owner refuses the replaced channel, under no lock of a link.
/// Blocks:  never.
/// Cost:    a search among at most kMost.
class Strangers {
 public:
  /// Its words when it asked for a taken place; both are for rank 0 alone.
  struct Claim {
    std::uint32_t place = 0;
    std::string address;
    std::uint64_t group = 0;  ///< in which it was a member, 0: none
  };
  struct Claimed {
    std::shared_ptr<MemberChannel> channel;
    Claim claim;
  };

  static constexpr std::size_t kMost = kMaxPlaces;
  static constexpr std::size_t kMostOfLink = 8;

  /// Adds a channel and returns the replaced one, if any: one of the same link when that has too
  /// many, else a silent one, else the oldest of all.
  [[nodiscard]] std::shared_ptr<MemberChannel> add(std::shared_ptr<MemberChannel> channel);
  /// Removes a channel that has a place now, or is lost. Null if it is no stranger.
  [[nodiscard]] std::shared_ptr<MemberChannel> take(const MemberChannel& channel);
  /// Notes a claim; the last one for a place counts.
  void claim(const MemberChannel& channel, Claim claim);
  [[nodiscard]] std::optional<Claimed> take_claim(std::uint32_t place);
  /// Keeps a hello that cannot be answered yet.
  void keep_hello(const MemberChannel& channel, const Envelope& hello);
  struct Hello {
    std::shared_ptr<MemberChannel> channel;
    Envelope envelope;
  };
  [[nodiscard]] std::vector<Hello> take_hellos();
  [[nodiscard]] std::vector<std::shared_ptr<MemberChannel>> all() const;
  void clear() { strangers_.clear(); }

 private:
  struct Stranger {
    std::shared_ptr<MemberChannel> channel;
    std::optional<Claim> claim;
    std::optional<Envelope> hello;
  };
  using List = std::vector<Stranger>;
  [[nodiscard]] List::iterator find(const MemberChannel& channel);
  [[nodiscard]] List::iterator who_gives_way(const Link& link);

  List strangers_;  // the oldest first
};

}  // namespace tendon::v0::detail
