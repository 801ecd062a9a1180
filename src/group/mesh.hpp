// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/group/options.hpp>
#include <tendon/group/rendezvous.hpp>
#include <vector>

#include "group/channel.hpp"
#include "runtime/acceptor.hpp"

namespace tendon::v0::detail {

/// One group's ear on the mesh. Every call comes under the receive lock of the peer's link.
class MeshListener {
 public:
  virtual ~MeshListener() = default;
  virtual void on_inbound(std::uint32_t place, InboundMessage&& inbound) = 0;
  /// `channel` is the one to whom is gone, which may have been replaced since.
  virtual void on_lost(std::uint32_t place, const Channel& channel, const Error& error,
                       Absence how) = 0;
};

/// A channel from each member to each other, and how they come about. The groups of a job (the
/// first one and those split from it) share it; each hears what is addressed to it.
///
///     rank 0 listens at the rendezvous; the others connect to it: `join`, with their own address
///     when all have: rank 0 says each the addresses of the ranks below it: `neighbour`
///     each connects to those: `hello`, and is answered by one; it is complete when everybody is
///     known
///
/// When a member is gone, another process may take its place: it joins as that one did, is told
/// of all who are there, and says `hello` to them. In the place of rank 0 it listens at the
/// rendezvous, where the others look for it: seek_rank0(). Who is admitted to a group is for the
/// group to decide.
///
/// Owns:    the channels, this member's acceptor.
/// Threads: thread-safe. Lock order: a link's receive lock, then a group's, then the mesh's.
/// Errors:  of meet(), naming who is missing.
/// Blocks:  meet(), and who looks for rank 0.
/// Cost:    one link and one channel a peer.
class Mesh final : public ChannelOwner,
                   public OpenHandler,
                   public Work,
                   public std::enable_shared_from_this<Mesh> {
 public:
  /// Checks what can be checked alone. meet() comes next.
  [[nodiscard]] static Result<std::shared_ptr<Mesh>> create(std::shared_ptr<Engine> engine,
                                                            const Rendezvous& rendezvous,
                                                            const GroupOptions& options);
  Mesh(std::shared_ptr<Engine> engine, const Rendezvous& rendezvous, GroupOptions options);
  ~Mesh() override;

  /// Finds the others.
  [[nodiscard]] Result<void> meet(Deadline deadline);
  /// This process has come to a group that was coming to its end: of those who were there before
  /// it, all have gone, or somebody had when meet() failed, or rank 0 was replaced. Who tries again
  /// may find the next one.
  [[nodiscard]] bool came_too_late() const;

  [[nodiscard]] const std::shared_ptr<Engine>& engine() const noexcept { return engine_; }
  [[nodiscard]] std::uint32_t self() const noexcept { return self_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// Of the group that join makes.
  [[nodiscard]] std::uint64_t first_group() const {
    const Lock lock(mutex_);
    return first_group_;
  }
  /// null for this member itself, where nobody has been, and after end(). Another one when its
  /// process was replaced.
  [[nodiscard]] std::shared_ptr<Channel> channel(std::uint32_t place) const {
    const Lock lock(mutex_);
    return channels_[place];
  }
  /// Can this member be reached?
  [[nodiscard]] bool here(std::uint32_t place) const {
    const auto at = channel(place);
    return place == self_ || (at != nullptr && !at->lost());
  }
  /// Has this process taken a place that another one had?
  [[nodiscard]] bool replacement() const noexcept { return replacement_; }
  /// When rank 0 is gone: looks for another that has taken its place, until `deadline` at most. A
  /// member makes itself known to it.
  void seek_rank0(Deadline deadline);
  /// The same for who waits to be admitted: it came too late then, and goes there from the start.
  void look_for_rank0(Deadline deadline);
  /// "rank 3 (vision, host a, pid 12)".
  [[nodiscard]] std::string name_of(std::uint32_t place) const;
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  /// From now on `listener` hears what is said to `group`, beginning with what came before.
  void add(std::uint64_t group, std::weak_ptr<MeshListener> listener);
  /// What `staying`, by place, still say to it is dropped, until they have left it too. True when
  /// no group is left: end() comes next.
  [[nodiscard]] bool remove(std::uint64_t group, const MemberMask& staying);
  /// Nobody comes any more, and the others hear that this member has gone, however long shares of
  /// this live on; what is queued is sent before. The caller holds no lock.
  void end();

  // Memory that members let each other read
  /// The name of a segment that only this process writes, for publish() and in messages.
  [[nodiscard]] std::uint32_t name_segment(const std::shared_ptr<Segment>& segment);
  /// Lets a member of this host read it. False: not now, try again. Nothing if it was shown before.
  [[nodiscard]] Result<bool> publish(std::uint32_t place, const std::shared_ptr<Segment>& segment);
  /// It is not needed by its name any more; who has it mapped keeps it.
  void forget_segment(const std::shared_ptr<Segment>& segment);
  /// Is this member's memory within reach?
  [[nodiscard]] bool on_this_host(std::uint32_t place) const {
    return place == self_ || channel(place)->link().path().kind == PathKind::shm;
  }
  /// A message is queued somewhere: progress() goes on until all have left.
  void keep_sending();

  // ChannelOwner
  void on_inbound(Channel& channel, InboundMessage&& inbound) override;
  void on_channel_lost(Channel& channel, const Error& error, Absence how) override;
  // OpenHandler
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link,
                                               std::uint32_t pipe) override;
  void on_context_closed() override;
  // Work
  bool progress() override;
  [[nodiscard]] Unsent unsent() const override;

 private:
  struct Lost {
    std::shared_ptr<const Channel> channel;
    Error error;
    Absence how;
  };
  /// What came for a group that is not here yet: it is being made.
  struct Early {
    std::uint32_t place;
    InboundMessage inbound;
  };

  struct Dialled {
    std::shared_ptr<Channel> channel;
    std::string local_host;
  };
  struct Refusal {
    Error error;
    bool may_pass;  ///< when the process before is known to be gone
  };
  /// Of a place whose process is not known to be gone.
  struct Claim {
    Channel* channel;
    std::string address;      ///< at rank 0
    std::uint64_t group = 0;  ///< at rank 0, as in seat()
  };

  // mesh_join.cpp
  Result<void> host(Deadline deadline);
  Result<void> visit(Deadline deadline);
  Result<Dialled> reach_rank0(Deadline deadline);
  Result<Dialled> dial(std::uint32_t place, const std::string& address, Deadline deadline);
  Result<void> connect_to(std::uint32_t place, const std::string& address, Deadline deadline);
  Result<void> wait_until_complete(std::string_view doing, Deadline deadline);
  Error give_up(Error why) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool complete() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::string missing() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool found_us(std::uint32_t place) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error rank0_gone() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::string key_in_store() const;
  void introduce(std::uint32_t place) TENDON_REQUIRES(mutex_);
  void on_neighbour(const InboundMessage& inbound) TENDON_REQUIRES(mutex_);
  void on_refuse(std::uint32_t place, const InboundMessage& inbound) TENDON_REQUIRES(mutex_);
  void on_join(Channel& channel, const InboundMessage& inbound) TENDON_REQUIRES(mutex_);
  void on_hello(Channel& channel, const Envelope& envelope) TENDON_REQUIRES(mutex_);
  void seat(Channel& channel, std::uint32_t rank, std::string address, std::uint64_t group)
      TENDON_REQUIRES(mutex_);
  void greet(std::uint32_t place) TENDON_REQUIRES(mutex_);
  void admit_claim(std::uint32_t place) TENDON_REQUIRES(mutex_);
  bool settle(Channel& channel, std::uint32_t place) TENDON_REQUIRES(mutex_);
  void replace(std::uint32_t place, std::shared_ptr<Channel> channel) TENDON_REQUIRES(mutex_);
  void retire(std::uint32_t place) TENDON_REQUIRES(mutex_);
  void note_dialled(std::uint32_t place, const std::shared_ptr<Channel>& channel)
      TENDON_REQUIRES(mutex_);
  void forget_removed(std::uint32_t place) TENDON_REQUIRES(mutex_);

  [[nodiscard]] std::optional<std::uint32_t> place_of(const Channel& channel) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<Channel>> sending() const;

  const std::shared_ptr<Engine> engine_;
  const Rendezvous rendezvous_;
  const GroupOptions options_;
  const std::uint32_t self_;
  const std::uint32_t size_;
  std::uint64_t own_group_ = 0;  // rank 0: of a group that nobody was in before
  std::string address_;
  std::shared_ptr<Acceptor> acceptor_;

  mutable Mutex mutex_;
  std::uint64_t first_group_ TENDON_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Channel>> channels_ TENDON_GUARDED_BY(mutex_);  // by place
  struct Retired {
    std::weak_ptr<Channel> channel;
    std::uint32_t place;
  };
  // To those who were replaced, as long as a group or a call still needs them.
  std::vector<Retired> retired_ TENDON_GUARDED_BY(mutex_);
  // Opened, but have not said who they are.
  std::vector<std::shared_ptr<Channel>> strangers_ TENDON_GUARDED_BY(mutex_);
  std::map<std::uint32_t, Claim> claims_ TENDON_GUARDED_BY(mutex_);  // by place; of strangers
  // Of strangers, until first_group_ is known.
  std::map<Channel*, Envelope> early_hellos_ TENDON_GUARDED_BY(mutex_);
  // Rank 0: of who joined; else: of those to connect to.
  std::vector<std::string> addresses_ TENDON_GUARDED_BY(mutex_);
  std::uint32_t known_count_ TENDON_GUARDED_BY(mutex_) = 0;  // of those who joined, or answered
  MemberMask dialled_ TENDON_GUARDED_BY(mutex_);             // this member connected to them
  MemberMask answered_ TENDON_GUARDED_BY(mutex_);            // of those
  // Rank 0: members of a group whose rank 0 has gone.
  MemberMask survivors_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> replacement_{false};
  bool joined_ TENDON_GUARDED_BY(mutex_) = false;
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
  bool rank0_replaced_ TENDON_GUARDED_BY(mutex_) = false;  // for look_for_rank0()
  std::optional<Refusal> refused_ TENDON_GUARDED_BY(mutex_);
  std::map<std::uint32_t, Lost> lost_ TENDON_GUARDED_BY(mutex_);
  struct Shown {
    std::shared_ptr<Segment> segment;
    std::uint32_t id = 0;
    MemberMask to;
  };
  std::vector<Shown> shown_ TENDON_GUARDED_BY(mutex_);  // by this process
  std::uint32_t next_segment_id_ TENDON_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, std::weak_ptr<MeshListener>> listeners_ TENDON_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::vector<Early>> early_ TENDON_GUARDED_BY(mutex_);
  std::size_t early_count_ TENDON_GUARDED_BY(mutex_) = 0;
  // Groups: who has not left them yet.
  std::map<std::uint64_t, MemberMask> removed_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> sending_{false};
};

}  // namespace tendon::v0::detail
