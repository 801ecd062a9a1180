// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/group/options.hpp>
#include <tendon/group/rendezvous.hpp>
#include <vector>

#include "group/membership/arrivals.hpp"
#include "group/membership/first_group.hpp"
#include "group/membership/member_channel.hpp"
#include "group/membership/mesh_listeners.hpp"
#include "group/membership/mesh_place.hpp"
#include "group/membership/occupants.hpp"
#include "group/membership/strangers.hpp"
#include "runtime/acceptor.hpp"

namespace tendon::v0::detail {

class Attempts;
struct Connected;

/// A channel between each pair of members, and how it is made. The groups of a job (the first one
/// and those split from it) share it; each hears the words addressed to it.
///
///     rank 0 listens at the rendezvous; the others connect to it: `join`, with their own addresses
///     when all have: rank 0 tells each the addresses of the ranks below it: `neighbour`
///     each connects to those: `hello`, and is answered by one; it is complete when everybody is
///     known
///
/// When a member is lost, another process may take its place. It joins as that one did, learns all
/// members that are there, and says `hello` to them. In the place of rank 0 it listens at the
/// rendezvous, where the others look for it: seek_rank0(). The group decides whether it admits the
/// process.
///
/// Owns:    the channels, this member's acceptors.
/// Threads: thread-safe. Lock order: a link's receive lock, then a group's, then the mesh's.
/// Errors:  meet() names the members that are missing.
/// Blocks:  meet(), seek_rank0() and look_for_rank0().
/// Cost:    one link and one channel a peer.
class Mesh final : public ChannelOwner,
                   public OpenHandler,
                   public Work,
                   public std::enable_shared_from_this<Mesh> {
 public:
  /// Makes the mesh and checks what one member can check alone. Call meet() next.
  [[nodiscard]] static Result<std::shared_ptr<Mesh>> create(std::shared_ptr<ContextCore> context,
                                                            const Rendezvous& rendezvous,
                                                            const GroupOptions& options);
  Mesh(std::shared_ptr<ContextCore> context, const Rendezvous& rendezvous, GroupOptions options);
  ~Mesh() override;

  /// Connects to the other members.
  [[nodiscard]] Result<void> meet(Deadline deadline);
  /// True if this process reached a group that was about to end. The members that were there before
  /// it have all left, or one of them had when meet() failed, or rank 0 was replaced. A caller that
  /// tries again may find the next group.
  [[nodiscard]] bool came_too_late() const;

  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept { return context_; }
  [[nodiscard]] MeshPlace self() const noexcept { return {self_}; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// The id of the group that join makes.
  [[nodiscard]] std::uint64_t first_group() const {
    const Lock lock(mutex_);
    return first_group_.id();
  }
  /// null for this member itself, for a place without a process so far, and after end(). It changes
  /// when the process is replaced.
  [[nodiscard]] std::shared_ptr<MemberChannel> channel(MeshPlace place) const {
    const Lock lock(mutex_);
    return occupants_.at(place.value);
  }
  /// True if this member can be reached.
  [[nodiscard]] bool here(MeshPlace place) const {
    const Lock lock(mutex_);
    return place.value == self_ || occupants_.here(place.value);
  }
  /// True if this process has taken a place that another one had.
  [[nodiscard]] bool replacement() const {
    const Lock lock(mutex_);
    return arrivals_.late();
  }
  /// Looks for a process in the place of a lost rank 0, until `deadline` at most. A member
  /// introduces itself to it.
  void seek_rank0(Deadline deadline);
  /// The same for a member that waits to be admitted. It only notes that there is another rank 0:
  /// this member is too late then, and joins there from the start.
  void look_for_rank0(Deadline deadline);
  /// "rank 3 (vision, host a, pid 12)".
  [[nodiscard]] std::string name_of(MeshPlace place) const;
  /// The addresses at which it listens, with commas between them.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  /// Makes `listener` hear the words to `group` from now on, earlier ones first.
  void add(std::uint64_t group, std::weak_ptr<MeshListener> listener);
  /// Drops further words of `staying`, by place, to the group until they have left it too. True
  /// when no group is left: call end() next.
  [[nodiscard]] bool remove(std::uint64_t group, const MemberMask& staying);
  /// Ends the mesh, however long shares of it live: nobody connects any more, queued messages are
  /// sent, and the others hear that this member has left. The caller holds no lock.
  void end();

  // Memory that members let each other read
  /// As Publishing::name(), show() and forget(), by place.
  [[nodiscard]] std::uint32_t name_segment(const std::shared_ptr<Segment>& segment) {
    return context_->publishing().name(segment);
  }
  [[nodiscard]] Result<bool> publish(MeshPlace place, const std::shared_ptr<Segment>& segment);
  void forget_segment(const std::shared_ptr<Segment>& segment) {
    context_->publishing().forget(segment);
  }
  /// True if this process can map that member's memory.
  [[nodiscard]] bool on_this_host(MeshPlace place) const {
    return place == self() || channel(place)->link().shared_memory() != nullptr;
  }
  /// Notes that a message is queued: progress() continues until all have left.
  void keep_sending();

  // ChannelOwner
  void on_inbound(MemberChannel& channel, InboundMessage&& inbound) override;
  void on_channel_lost(MemberChannel& channel, const Error& error, Absence how) override;
  // OpenHandler
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link, const Descriptor& open,
                                               Bytes said) override;
  void on_context_closed() override;
  // Work
  bool progress() override;
  [[nodiscard]] Unsent unsent() const override;

 private:
  struct Dialled {
    std::shared_ptr<MemberChannel> channel;
    std::string local_host;
  };
  struct Refusal {
    Error error;
    bool may_pass;  ///< when the earlier process is known to be dead
  };

  // mesh_listen.cpp
  /// Returns why others may be unable to reach it, if that is known.
  Result<std::string> listen_as_rank0(Deadline deadline);
  Result<void> publish_address(Deadline deadline);
  Result<void> listen_as_member(const std::string& towards_rank0, Deadline deadline);
  Result<std::vector<std::string>> bind_all(std::span<const std::string> addresses);
  Result<Dialled> reach_rank0(Deadline deadline);
  Result<Dialled> reach_rank0_by_store(Deadline deadline);
  [[nodiscard]] std::string key_in_store() const;

  // mesh_join.cpp
  Result<void> host(Deadline deadline);
  Result<void> visit(Deadline deadline);
  Result<Dialled> dial(std::uint32_t place, std::span<const std::string> addresses,
                       std::string_view more, Deadline deadline);
  Result<std::optional<Dialled>> dial_each(std::span<const std::string> addresses,
                                           Deadline deadline, Attempts& attempts);
  Result<bool> pause_between(Attempts& attempts, Deadline deadline);
  std::shared_ptr<MemberChannel> open_channel(const Connected& connected);
  Result<void> connect_to(std::uint32_t place, const std::string& where, Deadline deadline);
  Result<void> wait_until_complete(std::string_view doing, Deadline deadline);
  [[nodiscard]] std::optional<std::uint32_t> take_turned_away() TENDON_REQUIRES(mutex_);
  Error give_up(Error why) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error rank0_gone() const TENDON_REQUIRES(mutex_);
  void introduce(std::uint32_t place) TENDON_REQUIRES(mutex_);
  void on_neighbour(const InboundMessage& inbound) TENDON_REQUIRES(mutex_);
  void on_refuse(std::uint32_t place, const InboundMessage& inbound) TENDON_REQUIRES(mutex_);
  void on_join(MemberChannel& channel, const InboundMessage& inbound) TENDON_REQUIRES(mutex_);
  void on_hello(MemberChannel& channel, const Envelope& envelope) TENDON_REQUIRES(mutex_);
  void seat(MemberChannel& channel, std::uint32_t rank, std::string address, std::uint64_t group)
      TENDON_REQUIRES(mutex_);
  void greet(std::uint32_t place) TENDON_REQUIRES(mutex_);
  void admit_claim(std::uint32_t place) TENDON_REQUIRES(mutex_);
  bool settle(MemberChannel& channel, std::uint32_t place) TENDON_REQUIRES(mutex_);
  void put(std::uint32_t place, std::shared_ptr<MemberChannel> channel) TENDON_REQUIRES(mutex_);

  [[nodiscard]] std::vector<std::shared_ptr<MemberChannel>> sending() const;

  const std::shared_ptr<ContextCore> context_;
  const Rendezvous rendezvous_;
  const GroupOptions options_;
  const std::uint32_t self_;
  const std::uint32_t size_;
  std::string address_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;

  mutable Mutex mutex_;
  FirstGroup first_group_ TENDON_GUARDED_BY(mutex_);
  Occupants occupants_ TENDON_GUARDED_BY(mutex_);
  Strangers strangers_ TENDON_GUARDED_BY(mutex_);
  Arrivals arrivals_ TENDON_GUARDED_BY(mutex_);
  // At rank 0 the addresses of the joined members, elsewhere those of the peers to connect to.
  std::vector<std::string> addresses_ TENDON_GUARDED_BY(mutex_);
  bool joined_ TENDON_GUARDED_BY(mutex_) = false;
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
  bool rank0_replaced_ TENDON_GUARDED_BY(mutex_) = false;  // for look_for_rank0()
  std::optional<Refusal> refused_ TENDON_GUARDED_BY(mutex_);
  MeshListeners listeners_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> sending_{false};
};

}  // namespace tendon::v0::detail
