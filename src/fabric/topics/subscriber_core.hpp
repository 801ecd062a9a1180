// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/subscriber.hpp>
#include <vector>

#include "channel/device_copy_kind.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/plain/plain_inbox.hpp"
#include "fabric/ports/node_port.hpp"
#include "fabric/samples/last_receiver.hpp"
#include "fabric/samples/receiver_seat.hpp"
#include "fabric/topics/feed.hpp"
#include "fabric/topics/feed_queue.hpp"
#include "fabric/topics/receiver_turn.hpp"
#include "fabric/topics/refused_schemas.hpp"
#include "fabric/topics/returned_samples.hpp"
#include "fabric/topics/streams.hpp"
#include "runtime/timers.hpp"

namespace tendon::v0::detail {

class PostedSample;

/// One subscriber: it connects to publishers, reads its streams in turn, and reports their state to
/// its program.
///
/// Owns:    its Streams.
/// Threads: recv() by one thread at a time; the rest at any time. posting_ is taken before mutex_,
///          and that before a link's receive lock.
/// Errors:  as Subscriber.
/// Blocks:  recv(), wait_for_publishers(): until the deadline; close(): as NodePort::unfollow().
/// Cost:    recv(): a look at the feeds that have something, and else a look at each link.
class SubscriberCore final : public Follower,
                             public Timed,
                             public std::enable_shared_from_this<SubscriberCore> {
 public:
  [[nodiscard]] static std::shared_ptr<SubscriberCore> create(std::shared_ptr<NodePort> node,
                                                              KeyExpression keys,
                                                              const SubscriberOptions& options);
  SubscriberCore(std::shared_ptr<NodePort> node, KeyExpression keys,
                 const SubscriberOptions& options);

  [[nodiscard]] const KeyExpression& keys() const noexcept override { return keys_; }
  [[nodiscard]] std::uint32_t entity() const noexcept override { return entity_; }
  [[nodiscard]] const SubscriberOptions& options() const noexcept { return options_; }

  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept { return context_; }

  /// Makes an inbox for plain peers, if its options or its node ask for one. Before anybody else
  /// has it. Errors: not_supported, for a node without Zenoh.
  [[nodiscard]] Result<void> prepare_for_plain_peers();
  /// Call it after the announcement: a publisher to which Zenoh reports it can then identify it.
  [[nodiscard]] Result<void> listen_to_plain_peers();
  using Numbered = NumberedSample;
  /// Its tensors stay as they arrived: in host memory, or on a GPU in memory of the publisher.
  [[nodiscard]] Result<Numbered> recv(Deadline deadline);
  [[nodiscard]] Completion<Sample> recv_async();
  /// Makes the caller the receiver until stop_receiving(); recv() is `busy`. False: there is one.
  [[nodiscard]] bool become_receiver() noexcept { return seat_.take(); }
  void stop_receiving() { (void)leave_seat(); }
  /// recv() for the receiver.
  [[nodiscard]] Result<Numbered> receive(Deadline deadline);
  // Called by its completion
  /// Completes it if there is a sample. False: it is complete.
  [[nodiscard]] bool go_on(PostedSample& posted) TENDON_EXCLUDES(posting_);
  void drive(PostedSample& posted, Deadline deadline);
  /// False: it is complete.
  bool cancel(const PostedSample& posted) TENDON_EXCLUDES(posting_);
  /// Puts back a sample that was taken as this one and not wanted: a receiver gets it again.
  using Place = ReturnedSamples::Place;
  void put_back(Numbered taken, Place place = Place::behind_equals);
  /// Counts bytes that were copied to a GPU, from one, or within it.
  void count_copy(DeviceCopyKind kind, std::uint64_t bytes);
  [[nodiscard]] Result<void> wait_for_publishers(std::size_t count, Deadline deadline);
  [[nodiscard]] SubscriberStats stats() const;
  void on_event(std::function<void(const FabricEvent&)> callback);
  void close();
  // Timed
  void on_time() override { settle(); }

  // Follower
  /// Counts a difference of schemas.
  [[nodiscard]] bool takes(const EntityAnnouncement& publisher) override;
  [[nodiscard]] bool is_connected(const PublisherId& publisher) const override;
  [[nodiscard]] bool is_connected_to(const ContextId& context) const override;
  [[nodiscard]] Result<void> connect(const EntityAnnouncement& publisher, const PeerName& node,
                                     const std::shared_ptr<Link>& link) override;
  [[nodiscard]] EntityAnnouncement announcement() const;

  /// An error once it, or its Context, was closed.
  [[nodiscard]] Result<void> usable(std::string_view where) const;

 private:
  using Connections = Streams::Connections;
  using Entry = Streams::Entry;
  using Kept = ReceiverTurn::Kept;
  enum class Attempt : std::uint8_t { nothing, sample, look_again };
  [[nodiscard]] std::shared_ptr<const Connections> connections() const;
  /// The connections of this version, for the receiver.
  [[nodiscard]] const Connections& connections_at(std::uint64_t version);
  /// Ends the receiver's turn, and drops its changed parts.
  Kept leave_seat();
  /// Empty while there is a receiver, which checks for changes itself.
  Kept take_kept();
  [[nodiscard]] std::shared_ptr<const Entry> entry_of(const Feed& feed) const;
  [[nodiscard]] Attempt try_feeds(const Connections& connections, Numbered& next);
  /// Takes from the last feed again if it has more and no other waits.
  [[nodiscard]] bool try_last_again(Numbered& next);
  void queue_the_rest();
  /// Takes from the waiting feeds, in turn.
  [[nodiscard]] Attempt try_waiting(Numbered& next);
  /// The entry of the feed that had the last sample, if it is unchanged, or null.
  [[nodiscard]] const Entry* last_entry();
  void drop_old_entry();
  [[nodiscard]] bool take_from(const Entry& entry, Numbered& next);
  [[nodiscard]] Attempt try_recv(const Connections& connections, Numbered& next);
  [[nodiscard]] bool take_plain(Numbered& next);
  [[nodiscard]] bool take_end(Numbered& next);
  [[nodiscard]] static bool is_superseded(const Entry& entry);
  /// Counts a sample of another schema, and returns whether the program shall hear of it.
  [[nodiscard]] bool refuse(const Entry& entry, const Feed::Taken& taken) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool accept(const Entry& entry, Feed::Taken& taken, Numbered& next);
  void tell(const std::string& key, const Gap& gap) const;
  void tell_mismatch(const Entry& entry) const;
  [[nodiscard]] std::string nothing_came() const;
  /// Handles changes of its channels.
  void settle();
  void act_on(Streams::Changes changes);
  /// Counts the changes in its streams.
  void note(const Streams::Changes& changes) TENDON_REQUIRES(mutex_);
  void finish(const Streams::Changes::Over& over) TENDON_REQUIRES(mutex_);
  /// Takes a sample that is there now, without a wait. Empty: none is.
  [[nodiscard]] std::optional<Result<Numbered>> take_now();
  [[nodiscard]] std::optional<Numbered> take_returned();
  void complete(PostedSample& posted, Result<Sample> result);

  const std::shared_ptr<NodePort> node_;
  const std::shared_ptr<ContextCore> context_;
  const KeyExpression keys_;
  const SubscriberOptions options_;
  const std::uint32_t entity_;
  std::shared_ptr<PlainInbox> plain_;  // null: it does not hear plain Zenoh peers
  const std::shared_ptr<LastReceiver> last_receiver_ = std::make_shared<LastReceiver>();
  ReceiverSeat seat_;
  std::atomic<bool> closed_{false};
  ReceiverTurn turn_;                 // only the holder of seat_ touches it
  std::shared_ptr<FeedQueue> queue_;  // set before anybody else has this
  Mutex posting_;
  std::shared_ptr<PostedSample> posted_ TENDON_GUARDED_BY(posting_);  // it is the receiver
  mutable Mutex mutex_;
  Streams streams_ TENDON_GUARDED_BY(mutex_);
  StreamVersions versions_;
  std::deque<Sample> ends_ TENDON_GUARDED_BY(mutex_);  // to be delivered
  RefusedSchemas refused_ TENDON_GUARDED_BY(mutex_);
  SubscriberStats stats_ TENDON_GUARDED_BY(mutex_);
  ReturnedSamples returned_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
