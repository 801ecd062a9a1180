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

/// Which process has which place of a group, which has gone from there, and what each has said that
/// it is ready for. All of it is by place.
///
/// A process has its seat for as long as the agreement's view has a member at its place, gone or
/// not. Another one may have come to the mesh in its place since, and may be gone again.
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
    std::shared_ptr<const MemberChannel> channel;  ///< to the process that is gone
    Absence how;
    bool messages_dropped = false;  ///< those that it sent and that were not taken
    /// It has left in order, so it may have done all that was asked of it.
    [[nodiscard]] bool in_order() const { return error.code == ErrorCode::end_of_stream; }
  };
  /// What the word of a loss tells.
  enum class News : std::uint8_t {
    none,   ///< it was known, or is of a process that was replaced since
    proof,  ///< what was assumed before
    loss,
  };
  /// To the process that the mesh has for a place now; null for this member and at an empty place.
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
  /// A process that has come in the place of another takes part from the next epoch on, unless it
  /// is the one that was left out, which `now` may still take to be there. True: one did.
  [[nodiscard]] bool admit_newcomers(const Epoch& now);

  // The processes that are there, and those that have gone
  /// The process that the others mean by the member there; null where there is none.
  [[nodiscard]] const std::shared_ptr<MemberChannel>& at(GroupPlace place) const {
    return seats_[place];
  }
  [[nodiscard]] News note(GroupPlace place, const Loss& loss, const Epoch& now);
  /// After note(): it is left out of the next epoch. A member that was ready for it and left in
  /// order may have seen it complete, which then is so for everybody: it stays until miss_early().
  void leave_out(GroupPlace place, const Loss& loss, const Epoch& now);
  /// The next epoch is complete, or never will be: the members that left early are left out.
  void miss_early();
  [[nodiscard]] const std::map<GroupPlace, Loss>& losses() const noexcept { return lost_; }
  [[nodiscard]] const Loss* loss_at(GroupPlace place) const;
  /// The first of the losses() but for the members that left early.
  [[nodiscard]] std::optional<GroupPlace> first_missing() const;
  [[nodiscard]] bool has_gone(GroupPlace place) const;
  /// Where another process has come since, and this was not asked before.
  [[nodiscard]] std::vector<GroupPlace> take_replaced();
  /// A process that was replaced is not lost. Dropped by the caller without a lock, as each may end
  /// a link; so is what the next one returns.
  [[nodiscard]] std::vector<Loss> forget_replaced();
  /// The channels to everybody: this member has left.
  [[nodiscard]] std::vector<std::shared_ptr<const MemberChannel>> forget();

  // What they are ready for: the latest that each has said
  /// False: a later one is known.
  [[nodiscard]] bool hear_ready(GroupPlace place, const Ready& said);
  [[nodiscard]] const Ready& ready(GroupPlace place) const { return ready_[place]; }
  /// The highest attempt of that view.
  [[nodiscard]] std::uint32_t latest_attempt(std::uint64_t view) const;
  /// Somebody is ready for a later one of the same view, so `next` was complete; and those of it at
  /// `places` are neither beyond it nor lost: their words are on their way here.
  [[nodiscard]] bool is_over_for_others(const Epoch& next,
                                        const std::vector<GroupPlace>& places) const;
  /// The members have agreed since to let others in. One that had heard before that this member is
  /// ready for `next` may have entered it without them, and waits for it there. False: one whose
  /// word is missing says that it will not enter, or one is lost, which ends that epoch for all.
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
  /// Ready for the epoch that is entered here, and gone.
  std::map<GroupPlace, std::shared_ptr<const MemberChannel>> left_early_;
  ByPlace<Ready> ready_;
};

}  // namespace tendon::v0::detail
