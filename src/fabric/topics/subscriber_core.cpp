// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/subscriber_core.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <tendon/fabric/limits.hpp>
#include <tuple>
#include <utility>

#include "fabric/plain/plain_service.hpp"
#include "fabric/ports/subscription_request.hpp"
#include "fabric/samples/sample_age.hpp"
#include "fabric/topics/posted_sample.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.recv";

// The period for the publisher's request; the rate was checked.
std::uint64_t period_of(const std::optional<double>& max_hz) {
  return max_hz ? static_cast<std::uint64_t>(std::llround(1e9 / *max_hz)) : 0;
}

// True for news of a receiver: other links, an end, or a channel that has its turn.
bool is_news(const Streams::Changes& changes) {
  return changes.connections_changed || !changes.over.empty() || !changes.read_out.empty();
}

}  // namespace

std::shared_ptr<SubscriberCore> SubscriberCore::create(std::shared_ptr<NodePort> node,
                                                       KeyExpression keys,
                                                       const SubscriberOptions& options) {
  auto core = std::make_shared<SubscriberCore>(std::move(node), std::move(keys), options);
  core->queue_ =
      std::make_shared<FeedQueue>([weak = std::weak_ptr(core), context = core->context_] {
        context->schedule([weak] {
          if (const auto self = weak.lock()) self->settle();
        });
      });
  return core;
}

SubscriberCore::SubscriberCore(std::shared_ptr<NodePort> node, KeyExpression keys,
                               const SubscriberOptions& options)
    : node_(std::move(node)),
      context_(node_->context()),
      keys_(std::move(keys)),
      options_(options),
      entity_(node_->entities()->next_number()),
      streams_({.lease = context_->options().lease,
                .rate = options_.max_hz ? GapFinder::Rate::thinned : GapFinder::Rate::all,
                .newest_only = options_.newest_only.value_or(options_.max_age.has_value())}) {
  node_->entities()->add(entity_, std::weak_ptr<const LastReceiver>(last_receiver_));
}

Result<void> SubscriberCore::usable(std::string_view where) const {
  TENDON_CHECK(context_->usable(where));
  if (!closed_.load(std::memory_order_relaxed)) return {};
  return Error{ErrorCode::pipe_closed, where, "the subscriber of " + keys_.text() + " was closed"};
}

Result<void> SubscriberCore::prepare_for_plain_peers() {
  const bool asked_by_node = !options_.max_age && node_->hears_plain_peers_on(keys_);
  if (!options_.hears_plain.value_or(asked_by_node)) return {};
  if (node_->zenoh() == nullptr) return no_plain_peers("subscriber.declare");
  plain_ = std::make_shared<PlainInbox>(
      PlainInbox::Wanted{.keys = keys_,
                         .most_samples = options_.window,
                         .schema = options_.schema,
                         .content = options_.plain_content},
      PlainInbox::Told{.on_came = [context = context_] { context->wake_for_work(); },
                       .on_event =
                           [weak = std::weak_ptr(node_)](FabricEvent event) {
                             if (const auto node = weak.lock()) node->tell(std::move(event));
                           }});
  return {};
}

Result<void> SubscriberCore::listen_to_plain_peers() {
  return plain_ == nullptr ? Result<void>() : node_->hear_plain_peers(plain_);
}

// Connecting

EntityAnnouncement SubscriberCore::announcement() const {
  EntityAnnouncement said{.domain = {},
                          .kind = EntityKind::subscriber,
                          .context = {},
                          .entity = entity_,
                          .schema = {},
                          .qos = {},
                          .hears_plain = plain_ != nullptr,
                          .topic = keys_};
  if (options_.schema != nullptr) said.schema = options_.schema->hash();
  return said;
}

bool SubscriberCore::takes(const EntityAnnouncement& publisher) {
  if (closed_ || !keys_.intersects(publisher.topic)) return false;
  if (options_.schema == nullptr || !publisher.schema ||
      *publisher.schema == options_.schema->hash())
    return true;
  const PublisherId id{publisher.context, publisher.entity};
  const std::string node = node_->name_of_peer(publisher.context).text;
  const std::string reason = "published with another schema than " + keys_.text() +
                             " was subscribed with: the two are not connected";
  {
    const Lock lock(mutex_);
    if (!refused_.is_news(id, *publisher.schema)) return false;
    ++stats_.schema_mismatches;
    refused_.note_last(node + " on " + publisher.topic.text() + ": " + reason);
  }
  node_->tell({.kind = FabricEventKind::schema_mismatch,
               .key = publisher.topic.text(),
               .node = node,
               .reason = reason,
               .entity = publisher.entity,
               .subscriber = entity_});
  return false;
}

bool SubscriberCore::is_connected(const PublisherId& publisher) const {
  const Lock lock(mutex_);
  return streams_.is_open(publisher);
}

bool SubscriberCore::is_connected_to(const ContextId& context) const {
  const Lock lock(mutex_);
  return streams_.has_open(context);
}

Result<void> SubscriberCore::connect(const EntityAnnouncement& publisher, const PeerName& node,
                                     const std::shared_ptr<Link>& link) {
  const PublisherId id{publisher.context, publisher.entity};
  Feed::Options options{.window = Window::said(options_.window, kPipeWindowBytes),
                        .max_held = options_.max_held,
                        .rate = options_.max_hz ? GapFinder::Rate::thinned : GapFinder::Rate::all};
  {
    const Lock lock(mutex_);
    TENDON_TRY(seen, streams_.goes_on_at(id));
    options.seen = seen;
  }
  const SubscriptionRequest request{.entity = publisher.entity,
                                    .subscriber = entity_,
                                    .seen_incarnation = options.seen.incarnation,
                                    .seen_sequence = options.seen.sequence,
                                    .seen_stamp = options.seen.stamp,
                                    .period_ns = period_of(options_.max_hz)};
  // Before the channel: the answer is here before the first sample.
  if (options_.max_age) context_->ask_clock(*link);
  const Opening opening{.purpose = Purpose::fabric,
                        .header = std::as_bytes(std::span(&request, 1)),
                        .window_messages = options.window.messages,
                        .window_bytes = options.window.bytes};
  if (link->traits().slots_bound_window) options.window = options.window.without_bytes();
  std::shared_ptr<Feed> feed;
  TENDON_CHECK(context_->open_pipe(*link, opening, [&](std::uint32_t pipe) {
    feed = std::make_shared<Feed>(context_, link, pipe, options, queue_);
    return feed->sink();
  }));
  Streams::Changes changes;
  std::optional<Streams::Came> came;
  {
    const Lock lock(mutex_);
    // Two attempts may both succeed, if the announcement was withdrawn and repeated meanwhile.
    if (!closed_) {
      const Streams::Candidate candidate{id, publisher.topic.text(), node,
                                         link->peer().incarnation};
      if (const auto added = streams_.add(candidate, feed, changes)) came = *added;
      note(changes);
    }
  }
  if (!came) {
    feed->close();
    return usable("subscriber.connect");
  }
  if (*came == Streams::Came::anew) {
    node_->tell({.kind = FabricEventKind::came,
                 .key = publisher.topic.text(),
                 .node = node.text,
                 .reason = "connected: " + link->path().to_string(),
                 .entity = publisher.entity,
                 .subscriber = entity_});
  }
  act_on(std::move(changes));
  feed->tell_again();  // it may have something, or be over, since before it was in the list
  context_->wake_others();
  return {};
}

std::shared_ptr<const SubscriberCore::Connections> SubscriberCore::connections() const {
  const Lock lock(mutex_);
  return streams_.connections();
}

const SubscriberCore::Connections& SubscriberCore::connections_at(std::uint64_t version) {
  drop_old_entry();
  return turn_.links_at(version, [&] { return connections(); });
}

std::shared_ptr<const SubscriberCore::Entry> SubscriberCore::entry_of(const Feed& feed) const {
  const Lock lock(mutex_);
  return streams_.entry_of(feed);
}

bool SubscriberCore::is_superseded(const Entry& entry) {
  return std::ranges::any_of(entry.newer, [](const auto& feed) {
    return !feed->link()->ended() && feed->state() == Feed::State::open;
  });
}

void SubscriberCore::settle() {
  Streams::Changes changes;
  {
    const Lock lock(mutex_);
    if (closed_) return;
    changes = streams_.settle(std::chrono::steady_clock::now(), queue_->take_changed());
    note(changes);
  }
  // A feed that waited for another one may have its turn now.
  if (!changes.read_out.empty()) queue_->bring_back();
  act_on(std::move(changes));
}

void SubscriberCore::note(const Streams::Changes& changes) {
  for (const auto& over : changes.over) finish(over);
  if (changes.entries_changed) versions_.entries.fetch_add(1);
  if (is_news(changes)) versions_.receiving.fetch_add(1);
}

// Finishes a stream that was read: the missing samples at its end, and the end itself.
void SubscriberCore::finish(const Streams::Changes::Over& over) {
  Stream& stream = *over.stream;
  stats_.thinned += over.last.thinned;
  if (const auto& missing = over.last.missing) {
    stats_.missed += missing->last - missing->first + 1;
    stream.gaps.add(*missing);
  }
  ++stats_.ended;
  Sample end{.key = stream.key,
             .publisher = stream.node.text,
             .incarnation = stream.incarnation,
             .entity = stream.publisher.entity};
  end.gaps = stream.take_gaps(stream.incarnation);
  if (!options_.ends) {
    for (const Gap& gap : end.gaps) tell(stream.key, gap);
    return;
  }
  // Its receiver reports them, as those before a sample.
  end.ended = stream.ended();
  ends_.push_back(std::move(end));
}

void SubscriberCore::act_on(Streams::Changes changes) {
  for (Ended& ended : changes.told) {
    std::ostringstream words;
    words << ended;
    node_->tell({.kind = FabricEventKind::ended,
                 .key = ended.key,
                 .node = ended.publisher,
                 .reason = words.str(),
                 .entity = ended.entity,
                 .ended = ended,
                 .subscriber = entity_});
  }
  for (const auto& broken : changes.broken) {
    const bool is_refused = broken.by == Streams::Changes::Broken::By::limit;
    {
      const Lock lock(mutex_);
      if (!is_refused) ++stats_.violations;
      refused_.note_last(broken.why.detail);
    }
    if (broken.tell || !is_refused) context_->log(LogLevel::warn, kWhere, broken.why.message());
    if (!broken.tell) continue;
    const std::string what =
        is_refused ? "it has no room for a further subscription"
                   : "its channel broke " + std::to_string(BreakPace::kMost) + " times";
    node_->tell({.kind = FabricEventKind::unreachable,
                 .key = broken.stream->key,
                 .node = broken.stream->node.text,
                 .reason = what + ", and is asked again each " +
                           std::to_string(BreakPace::kWorn / std::chrono::seconds(1)) +
                           " s from now on: " + std::string(to_string(broken.why.code)) + ": " +
                           broken.why.detail,
                 .entity = broken.stream->publisher.entity,
                 .subscriber = entity_});
  }
  for (const auto& feed : changes.read_out) feed->close();
  if (changes.connections_changed || changes.entries_changed) (void)take_kept();
  for (const PublisherId& publisher : changes.again) node_->connect_again(*this, publisher);
  if (changes.next) (void)context_->add_timed(Deadline::at(*changes.next), weak_from_this());
  if (is_news(changes)) context_->wake_others();
}

// Receiving

Result<SubscriberCore::Numbered> SubscriberCore::recv(Deadline deadline) {
  TENDON_CHECK(usable(kWhere));  // a thread of the parent may have borrowed the seat at the fork
  if (!seat_.take()) {
    return Error{ErrorCode::busy, kWhere,
                 "another thread receives from the subscriber of " + keys_.text()};
  }
  struct Leaving {
    SubscriberCore& subscriber;
    ~Leaving() { subscriber.stop_receiving(); }
  } const leaving{*this};
  return receive(deadline);
}

// A change is noted before take_kept() looks for a receiver, and a receiver has left before it
// looks for a change: one of the two drops the changed parts.
SubscriberCore::Kept SubscriberCore::leave_seat() {
  const ReceiverTurn::Seen seen = turn_.seen();
  seat_.leave();
  return seen.is_old(versions_) ? take_kept() : Kept();
}

SubscriberCore::Kept SubscriberCore::take_kept() {
  if (!seat_.borrow()) return {};
  queue_the_rest();
  Kept kept = turn_.take();
  seat_.leave();
  return kept;
}

Result<SubscriberCore::Numbered> SubscriberCore::receive(Deadline deadline) {
  last_receiver_->note();
  TENDON_CHECK(usable(kWhere));
  if (auto returned = take_returned()) return *std::move(returned);
  Numbered next;
  for (;;) {
    TENDON_CHECK(usable(kWhere));
    const std::uint64_t version = versions_.receiving.load();
    const Connections& now = connections_at(version);
    Attempt result = Attempt::nothing;
    const bool done = context_->wait(WaitedLinks(now.links), deadline, [&] {
      if (context_->unusable() || closed_.load(std::memory_order_relaxed)) return true;
      result = versions_.receiving.load() != version ? Attempt::look_again : try_recv(now, next);
      return result != Attempt::nothing;
    });
    if (result == Attempt::sample) {
      next.number = ++turn_.taken_count;
      for (const Gap& gap : next.sample.gaps) tell(next.sample.key, gap);
      return next;
    }
    TENDON_CHECK(usable(kWhere));
    if (result == Attempt::look_again) {
      settle();
      continue;
    }
    if (!done) return Error{ErrorCode::timeout, kWhere, nothing_came()};
  }
}

std::optional<SubscriberCore::Numbered> SubscriberCore::take_returned() {
  const Lock lock(mutex_);
  return returned_.take();
}

void SubscriberCore::put_back(Numbered taken, Place place) {
  {
    const Lock lock(mutex_);
    if (closed_) return;
    returned_.put(std::move(taken), place);
  }
  context_->wake_others();
}

void SubscriberCore::count_copy(DeviceCopyKind kind, std::uint64_t bytes) {
  const Lock lock(mutex_);
  switch (kind) {
    case DeviceCopyKind::h2d:
      ++stats_.copies_h2d;
      stats_.bytes_h2d += bytes;
      return;
    case DeviceCopyKind::d2h:
      ++stats_.copies_d2h;
      return;
    case DeviceCopyKind::d2d:
      ++stats_.copies_d2d;
      stats_.bytes_d2d += bytes;
  }
}

// Receiving without a waiting thread

Completion<Sample> SubscriberCore::recv_async() {
  auto posted = std::make_shared<PostedSample>(shared_from_this());
  if (auto still = usable(kWhere); !still) {
    (void)posted->finish(std::move(still).error());
  } else if (!seat_.take()) {
    (void)posted->finish(
        Error{ErrorCode::busy, kWhere, "another receiver waits for samples of " + keys_.text()});
  } else {
    last_receiver_->note();  // not the thread that completes it: this one asks for the next
    {
      const Lock lock(posting_);
      posted_ = posted;
    }
    if (go_on(*posted)) context_->add_work(posted);
  }
  return Completion<Sample>(std::move(posted));
}

std::optional<Result<SubscriberCore::Numbered>> SubscriberCore::take_now() {
  if (auto still = usable(kWhere); !still) return std::move(still).error();
  if (auto returned = take_returned()) return *std::move(returned);
  for (;;) {
    Numbered next;
    switch (try_recv(connections_at(versions_.receiving.load()), next)) {
      case Attempt::nothing:
        return std::nullopt;
      case Attempt::sample:
        for (const Gap& gap : next.sample.gaps) tell(next.sample.key, gap);
        next.number = ++turn_.taken_count;
        return next;
      case Attempt::look_again:
        settle();
    }
  }
}

bool SubscriberCore::go_on(PostedSample& posted) {
  Kept kept_before;           // ends without the lock
  const Lock lock(posting_);  // until it is complete: whatever drops it waits for that
  if (posted_.get() != &posted) return false;
  auto taken = take_now();
  if (!taken) return true;
  const auto kept = std::exchange(posted_, nullptr);
  if (*taken && (*taken)->placement != nullptr) {
    const std::string key = (*taken)->sample.key;
    put_back(**std::move(taken), Place::before_equals);
    kept_before = leave_seat();  // after that: another receiver takes the next one
    complete(posted, Error{ErrorCode::unsupported_device, "subscriber.recv_async",
                           "the next sample of " + key +
                               " has tensors on a GPU, which an asynchronous receive does not copy "
                               "there: take it with recv()"});
    return false;
  }
  kept_before = leave_seat();
  if (*taken) {
    posted.came_as((*taken)->number);
    complete(posted, std::move((*taken)->sample));
  } else {
    complete(posted, std::move(*taken).error());
  }
  return false;
}

void SubscriberCore::complete(PostedSample& posted, Result<Sample> result) {
  posted.conclude(std::move(result));
  context_->wake_others();
}

void SubscriberCore::drive(PostedSample& posted, Deadline deadline) {
  for (bool done = true; done && !posted.finished();) {
    const std::uint64_t version = versions_.receiving.load();
    const auto now = connections();
    done = context_->wait(WaitedLinks(now->links), deadline, [&] {
      (void)go_on(posted);
      return posted.finished() || versions_.receiving.load() != version;
    });
  }
}

bool SubscriberCore::cancel(const PostedSample& posted) {
  if (context_->forked()) return false;
  Kept kept_before;  // ends without the lock
  const Lock lock(posting_);
  if (posted_.get() != &posted) return false;
  const auto found = std::exchange(posted_, nullptr);
  kept_before = leave_seat();
  complete(*found, Error{ErrorCode::cancelled, "completion.cancel",
                         "the receive was cancelled before a sample came"});
  return true;
}

void SubscriberCore::tell(const std::string& key, const Gap& gap) const {
  std::ostringstream words;
  words << gap;
  node_->tell({.kind = FabricEventKind::gap,
               .key = key,
               .node = gap.publisher,
               .reason = words.str(),
               .gap = gap,
               .entity = gap.entity,
               .subscriber = entity_});
}

void SubscriberCore::tell_mismatch(const Entry& entry) const {
  node_->tell({.kind = FabricEventKind::schema_mismatch,
               .key = entry.stream->key,
               .node = entry.stream->node.text,
               .reason = "it publishes samples that do not fit the schema that " + keys_.text() +
                         " was subscribed with: each of them is missing (schema)",
               .entity = entry.stream->publisher.entity,
               .subscriber = entity_});
}

std::string SubscriberCore::nothing_came() const {
  const Lock lock(mutex_);
  const std::size_t publisher_count = streams_.channel_count();
  std::string text = "nothing came on " + keys_.text() + " from " +
                     std::to_string(publisher_count) +
                     (publisher_count == 1 ? " publisher" : " publishers") +
                     (plain_ == nullptr ? "" : " or from plain Zenoh peers") +
                     " before the deadline" + node_->but_no_router();
  if (stats_.expired != 0) {
    text += "; " + std::to_string(stats_.expired) +
            " samples so far were older than max_age, or of unknown age";
  }
  if (!refused_.last().empty()) text += "; refused last: " + refused_.last();
  return text;
}

SubscriberCore::Attempt SubscriberCore::try_recv(const Connections& connections, Numbered& next) {
  if (take_end(next)) return Attempt::sample;
  // Plain peers have the last turn, together: after the feeds that had something at their last
  // turn.
  const bool has_plain_turn = plain_ != nullptr && turn_.feeds_first == 0;
  if (has_plain_turn && take_plain(next)) return Attempt::sample;
  const Attempt tried = try_feeds(connections, next);
  if (tried == Attempt::sample && turn_.feeds_first > 0) --turn_.feeds_first;
  if (tried != Attempt::nothing || plain_ == nullptr || has_plain_turn) return tried;
  return take_plain(next) ? Attempt::sample : Attempt::nothing;
}

SubscriberCore::Attempt SubscriberCore::try_feeds(const Connections& connections, Numbered& next) {
  if (turn_.more && try_last_again(next)) return Attempt::sample;
  if (const Attempt tried = try_waiting(next); tried != Attempt::nothing) return tried;
  // Taking from a feed includes a look at its link. With one link, the feed that had the last
  // sample avoids the queue; the others appear there.
  const Entry* const last = connections.links.size() == 1 ? last_entry() : nullptr;
  if (last != nullptr) {
    if (take_from(*last, next)) return Attempt::sample;
  } else {
    for (Link* const link : connections.links)
      if (!link->ended()) (void)context_->poll_link(*link);
  }
  return try_waiting(next);
}

bool SubscriberCore::try_last_again(Numbered& next) {
  const Entry* const last = queue_->some_wait() ? nullptr : last_entry();
  if (last != nullptr) return take_from(*last, next);
  queue_the_rest();
  return false;
}

// Puts it behind the waiting feeds.
void SubscriberCore::queue_the_rest() {
  if (std::exchange(turn_.more, false)) queue_->push(*turn_.last()->feed);
}

SubscriberCore::Attempt SubscriberCore::try_waiting(Numbered& next) {
  while (const auto feed = queue_->next()) {
    const std::uint64_t version = versions_.entries.load();
    const auto entry = entry_of(*feed);
    if (entry == nullptr) continue;  // it was closed, or is not in the list yet
    if (!entry->has_its_turn()) {
      queue_->set_aside(feed);
      // Another thread may have settled meanwhile, and brought nothing back.
      if (const auto now = entry_of(*feed); now != nullptr && now->has_its_turn())
        queue_->bring_back();
      continue;
    }
    if (take_from(*entry, next)) {
      turn_.note_last(entry, version);
      return Attempt::sample;
    }
    if (!feed->is_over()) continue;
    queue_->note_changed(*feed);
    return Attempt::look_again;
  }
  return Attempt::nothing;
}

void SubscriberCore::drop_old_entry() {
  if (turn_.is_last_of(versions_)) return;
  queue_the_rest();
  turn_.forget_last();
}

const SubscriberCore::Entry* SubscriberCore::last_entry() {
  drop_old_entry();
  const auto& last = turn_.last();
  return last != nullptr && last->has_its_turn() ? last.get() : nullptr;
}

bool SubscriberCore::take_from(const Entry& entry, Numbered& next) {
  while (auto taken = entry.feed->take()) {
    turn_.more = taken->more;
    if (accept(entry, *taken, next)) return true;
  }
  turn_.more = false;
  return false;
}

bool SubscriberCore::take_end(Numbered& next) {
  if (!options_.ends) return false;
  const Lock lock(mutex_);
  if (ends_.empty()) return false;
  next.sample = std::move(ends_.front());
  ends_.pop_front();
  return true;
}

bool SubscriberCore::take_plain(Numbered& next) {
  auto taken = plain_->take();
  if (!taken) return false;
  next.sample = *std::move(taken);
  turn_.feeds_first = queue_->count() + (turn_.more ? 1 : 0);
  const Lock lock(mutex_);
  ++stats_.received;
  return true;
}

bool SubscriberCore::accept(const Entry& entry, Feed::Taken& taken, Numbered& next) {
  if (is_superseded(entry)) {
    const Lock lock(mutex_);
    ++stats_.superseded;
    return false;
  }
  Stream& stream = *entry.stream;
  const std::uint64_t sequence = taken.header.sequence;
  std::optional<std::chrono::nanoseconds> age;
  if (options_.max_age) {
    const std::int64_t now = boot_time_ns();
    age = age_at_most(taken.header, context_->links().clock_of(*entry.feed->link(), now), now);
  }
  std::optional<GapReason> left_out;
  std::vector<Gap> gaps;
  bool is_news = false;
  {
    const Lock lock(mutex_);
    stats_.thinned += taken.thinned;
    if (taken.missing) {
      stream.gaps.add(*taken.missing);
      stats_.missed += taken.missing->last - taken.missing->first + 1;
    }
    if (taken.copied) ++stats_.copied;
    if (taken.unreadable) {
      ++stats_.undecodable;
      refused_.note_last(stream.node.text + " on " + stream.key + ": " + taken.unreadable->detail);
      left_out = GapReason::undecodable;
    } else if (options_.max_age && (!age || *age > *options_.max_age)) {
      ++stats_.expired;
      left_out = GapReason::expired;
    } else if (options_.schema != nullptr &&
               (!taken.tensors || taken.tensors->schema()->hash() != options_.schema->hash())) {
      is_news = refuse(entry, taken);
      left_out = GapReason::schema;
    }
    if (left_out && sequence != 0) {
      stream.gaps.add({sequence, sequence, *left_out});
      ++stats_.missed;
    }
    if (!left_out) {
      ++stats_.received;
      gaps = stream.take_gaps(taken.header.incarnation);
    }
  }
  if (is_news) tell_mismatch(entry);
  if (left_out) return false;
  Sample& sample = next.sample;
  sample.key = stream.key;
  sample.publisher = stream.node.text;
  sample.incarnation = taken.header.incarnation;
  sample.sequence = sequence;
  sample.stamp = taken.header.stamp;
  sample.age = age;
  sample.gaps = std::move(gaps);
  sample.tensors = std::move(taken.tensors);
  next.placement = std::move(taken.placement);
  next.direct = std::move(taken.direct);
  sample.bytes = std::move(taken.bytes);
  sample.entity = stream.publisher.entity;
  return true;
}

bool SubscriberCore::refuse(const Entry& entry, const Feed::Taken& taken) {
  ++stats_.schema_mismatches;
  const SchemaHash hash = taken.tensors ? taken.tensors->schema()->hash() : SchemaHash{};
  refused_.note_last(entry.stream->node.text + " on " + entry.stream->key + ": " +
                     (taken.tensors
                          ? describe_difference(*options_.schema, *taken.tensors->schema())
                          : std::string("raw bytes have no schema")));
  return refused_.is_news(entry.stream->publisher, hash);
}

Result<void> SubscriberCore::wait_for_publishers(std::size_t count, Deadline deadline) {
  constexpr std::string_view kHere = "subscriber.wait_for_publishers";
  std::size_t there = 0;
  std::optional<Error> error;
  const bool done = context_->wait(nullptr, deadline, [&] {
    if (auto still = usable(kHere); !still) {
      error = std::move(still).error();
      return true;
    }
    there = queue_->open_count();
    return there >= count;
  });
  if (error) return *std::move(error);
  if (done) return {};
  return Error{ErrorCode::timeout, kHere,
               keys_.text() + " is connected to " + std::to_string(there) + " publishers of " +
                   std::to_string(count) + " before the deadline" + node_->but_no_router()};
}

SubscriberStats SubscriberCore::stats() const {
  if (context_->forked()) return {};
  const auto plain = plain_ == nullptr ? PlainInbox::Counts() : plain_->counts();
  const Lock lock(mutex_);
  SubscriberStats stats = stats_;
  stats.publishers = queue_->open_count();
  stats.schema_mismatches += plain.mismatches;
  stats.plain_received = plain.taken;
  stats.plain_dropped = plain.dropped;
  stats.plain_refused = plain.refused;
  stats.plain_deleted = plain.deleted;
  return stats;
}

void SubscriberCore::on_event(std::function<void(const FabricEvent&)> callback) {
  node_->on_event([callback = std::move(callback), entity = entity_](const FabricEvent& event) {
    if (event.subscriber == entity) callback(event);
  });
}

void SubscriberCore::close() {
  if (context_->forked() || closed_.exchange(true)) return;
  node_->unfollow(*this, announcement());
  node_->entities()->remove(entity_);
  std::vector<std::shared_ptr<Feed>> feeds;
  {
    const Lock lock(mutex_);
    feeds = streams_.clear();
    returned_.clear();
    ends_.clear();
    versions_.entries.fetch_add(1);
    versions_.receiving.fetch_add(1);
  }
  for (const auto& feed : feeds) feed->close();
  if (plain_ != nullptr) plain_->close();
  context_->wake_others();
  std::shared_ptr<PostedSample> posted;
  {
    const Lock lock(posting_);
    posted = posted_;
  }
  if (posted != nullptr) (void)go_on(*posted);  // it ends
  (void)take_kept();
}

}  // namespace tendon::v0::detail
