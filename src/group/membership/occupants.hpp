// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "group/membership/member_channel.hpp"

namespace tendon::v0::detail {

/// The channel at each place of a mesh, those that were there before, and how the lost ones went.
///
/// Owns:    a share of the channel at each place, and of each that was lost there.
/// Threads: none; its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a search among the places.
class Occupants {
 public:
  struct Lost {
    std::shared_ptr<const MemberChannel> channel;  ///< null after clear()
    Error error;
    Absence how;
  };

  explicit Occupants(std::uint32_t size) : channels_(size) {}

  /// By place: null where no process has been.
  [[nodiscard]] const std::vector<std::shared_ptr<MemberChannel>>& channels() const noexcept {
    return channels_;
  }
  [[nodiscard]] const std::shared_ptr<MemberChannel>& at(std::uint32_t place) const {
    return channels_[place];
  }
  /// A process is there that can be reached.
  [[nodiscard]] bool here(std::uint32_t place) const {
    return channels_[place] != nullptr && !channels_[place]->lost();
  }
  [[nodiscard]] std::optional<std::uint32_t> place_of(const MemberChannel& channel) const;

  /// `channel` is that member's from now on, and may be lost already. Returns the one before, which
  /// is for the owner to close.
  std::shared_ptr<MemberChannel> put(std::uint32_t place, std::shared_ptr<MemberChannel> channel);
  /// Returns the place that it has, or had: another may have come there before it could be told
  /// that this one is gone.
  [[nodiscard]] std::optional<std::uint32_t> lose(MemberChannel& channel, const Error& error,
                                                  Absence how);
  /// Those that are lost, and whose places were not taken since.
  [[nodiscard]] const std::map<std::uint32_t, Lost>& lost() const noexcept { return lost_; }
  /// A process is to come there, after all.
  void forget_loss(std::uint32_t place) { lost_.erase(place); }
  /// All places are empty from now on; returns the channels that were there. Which places were lost
  /// is still known.
  [[nodiscard]] std::vector<std::shared_ptr<MemberChannel>> clear();

 private:
  struct Replaced {
    std::weak_ptr<MemberChannel> channel;
    std::uint32_t place;
  };

  std::vector<std::shared_ptr<MemberChannel>> channels_;
  std::vector<Replaced> replaced_;  // as long as a group or a call still needs them
  std::map<std::uint32_t, Lost> lost_;
};

}  // namespace tendon::v0::detail
