// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "group/membership/member_channel.hpp"

namespace tendon::v0::detail {

/// The channel at each place of a mesh, earlier channels there, and how the lost ones ended.
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
  /// True if a process that can be reached is there.
  [[nodiscard]] bool here(std::uint32_t place) const {
    return channels_[place] != nullptr && !channels_[place]->lost();
  }
  [[nodiscard]] std::optional<std::uint32_t> place_of(const MemberChannel& channel) const;

  /// Makes `channel` that of the place from now on, even if it is lost already. Returns the one
  /// before, which the owner closes.
  std::shared_ptr<MemberChannel> put(std::uint32_t place, std::shared_ptr<MemberChannel> channel);
  /// Returns the place that it has or had: another process may have arrived there before this loss
  /// was known.
  [[nodiscard]] std::optional<std::uint32_t> lose(MemberChannel& channel, const Error& error,
                                                  Absence how);
  /// The losses at places that were not taken since.
  [[nodiscard]] const std::map<std::uint32_t, Lost>& lost() const noexcept { return lost_; }
  /// Forgets a loss, because a process shall arrive there after all.
  void forget_loss(std::uint32_t place) { lost_.erase(place); }
  /// Empties all places; returns the channels that were there. The losses stay known.
  [[nodiscard]] std::vector<std::shared_ptr<MemberChannel>> clear();

 private:
  struct Replaced {
    std::weak_ptr<MemberChannel> channel;
    std::uint32_t place;
  };

  std::vector<std::shared_ptr<MemberChannel>> channels_;
  std::vector<Replaced> replaced_;  // as long as a group or a call needs them
  std::map<std::uint32_t, Lost> lost_;
};

}  // namespace tendon::v0::detail
