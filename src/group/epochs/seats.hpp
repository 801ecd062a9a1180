// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tendon/core/error.hpp>
#include <vector>

#include "group/epochs/epoch.hpp"
#include "group/membership/agreement.hpp"
#include "group/membership/numbered.hpp"

namespace tendon::v0::detail {

/// The process at each place of a group, the processes that left it, and the epochs for which each
/// has said that it is ready.
///
/// A process has its seat for as long as the agreement's view has a member at its place, alive or
/// not. Another one may have arrived in the mesh in its place since, and may have left again.
///
/// Owns:    the agreement, shares of channels.
/// Threads: none; its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look at each place when the view changes.
class Seats {
 public:
  struct Loss {
    Error error;
    std::shared_ptr<const MemberChannel> channel;  ///< to the lost process
    Absence how;
    bool messages_dropped = false;  ///< its untaken messages
    /// True if it has left in order, so it may have done all its part.
    [[nodiscard]] bool in_order() const { return error.code == ErrorCode::end_of_stream; }
  };
  /// The news in the word of a loss.
  enum class News : std::uint8_t {
    none,   ///< known before, or of a process that was replaced since
    proof,  ///< a loss that was assumed before is proved
    loss,
  };
  /// Finds the channel to the present process of a place; null for this member and an empty place.
  using ChannelAt = std::function<std::shared_ptr<MemberChannel>(GroupPlace place)>;

  Seats(GroupPlace self, std::size_t count, const View& view, Minority minority,
        Agreement::Clock::duration retry, ChannelAt channel_at);

  // The agreement
  [[nodiscard]] const Agreement& agreement() const noexcept { return agreement_; }
  void hear(GroupPlace from, const AgreementMessage& message);
  void tick();
  [[nodiscard]] std::vector<Agreement::Outgoing> take_outgoing() {
    return agreement_.take_outgoing();
  }
  /// Admits processes in others' places from the next epoch on, unless one is the process that was
  /// left out, which `now` may still take to be there. True: one was admitted.
  [[nodiscard]] bool admit_newcomers(const Epoch& now);

  // The present processes, and those that have left
  /// The process that the others mean by the member there; null where there is none.
  [[nodiscard]] const std::shared_ptr<MemberChannel>& at(GroupPlace place) const {
    return seats_[place];
  }
  [[nodiscard]] News note(GroupPlace place, const Loss& loss, const Epoch& now);
  /// Leaves it out of the next epoch; call after note(). A member that was ready for that epoch and
  /// left in order may have seen it complete, which then holds for all: it stays until
  /// miss_early().
  void leave_out(GroupPlace place, const Loss& loss, const Epoch& now);
  /// Leaves out the members that left early: the next epoch is complete, or never will be.
  void miss_early();
  [[nodiscard]] const std::map<GroupPlace, Loss>& losses() const noexcept { return lost_; }
  [[nodiscard]] const Loss* loss_at(GroupPlace place) const;
  /// The first of the losses() without the members that left early.
  [[nodiscard]] std::optional<GroupPlace> first_missing() const;
  [[nodiscard]] bool has_gone(GroupPlace place) const;
  /// The places where another process has arrived since the last call.
  [[nodiscard]] std::vector<GroupPlace> take_replaced();
  /// Forgets the losses of replaced processes. The caller drops them without a lock, as each may
  /// end a link; the same holds for forget().
  [[nodiscard]] std::vector<Loss> forget_replaced();
  /// Returns the channels to all members, because this member has left.
  [[nodiscard]] std::vector<std::shared_ptr<const MemberChannel>> forget();

  // The latest epoch for which each has said that it is ready
  /// False: a later one is known.
  [[nodiscard]] bool hear_ready(GroupPlace place, const Ready& said);
  [[nodiscard]] const Ready& ready(GroupPlace place) const { return ready_[place]; }
  /// The highest attempt of that view.
  [[nodiscard]] std::uint32_t latest_attempt(std::uint64_t view) const;
  /// True if `next` was complete, because a member is ready for a later one of the same view. The
  /// members at `places` must be neither beyond it nor lost: their words are on their way here.
  [[nodiscard]] bool is_over_for_others(const Epoch& next,
                                        const std::vector<GroupPlace>& places) const;
  /// True if a member may have entered `next` although the members have agreed since to admit
  /// newcomers: it had heard before that this member is ready, and waits for it there. False: a
  /// member whose word is missing says that it will not enter, or one is lost, which ends that
  /// epoch for all.
  [[nodiscard]] bool may_run_already(const Epoch& next, const View& agreed) const;

 private:
  void follow_view();
  [[nodiscard]] bool is_beyond(const Epoch& next, GroupPlace place) const {
    return ready_[place].number > next.number();
  }

  const GroupPlace self_;
  const ChannelAt channel_at_;
  Agreement agreement_;
  std::uint64_t followed_view_ = 0;
  ByPlace<std::shared_ptr<MemberChannel>> seats_;
  std::map<GroupPlace, Loss> lost_;
  /// Members that were ready for the epoch that is entered here, and left.
  std::map<GroupPlace, std::shared_ptr<const MemberChannel>> left_early_;
  ByPlace<Ready> ready_;
};

}  // namespace tendon::v0::detail
