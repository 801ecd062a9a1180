// SPDX-License-Identifier: Apache-2.0
#include "fabric/subscriber_core.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <tendon/fabric/limits.hpp>
#include <tendon/observe/log.hpp>
#include <tuple>
#include <utility>

#include "fabric/posted_sample.hpp"
#include "fabric/sample_age.hpp"
#include "fabric/subscription_request.hpp"
#include "runtime/busy.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.recv";

// As the publisher is asked for it; the rate was checked.
std::uint64_t period_of(const std::optional<double>& max_hz) {
  return max_hz ? static_cast<std::uint64_t>(std::llround(1e9 / *max_hz)) : 0;
}

}  // namespace

SubscriberCore::SubscriberCore(std::shared_ptr<NodeCore> node, KeyExpression keys,
                               const SubscriberOptions& options)
    : node_(std::move(node)),
      context_(node_->context()),
      keys_(std::move(keys)),
      options_(options),
      entity_(node_->entities()->next_number()),
      connections_(std::make_shared<const Connections>()) {}

Result<void> SubscriberCore::usable(std::string_view where) const {
  TENDON_CHECK(context_->usable(where));
  if (!closed_.load(std::memory_order_relaxed)) return {};
  return Error{ErrorCode::pipe_closed, where, "the subscriber of " + keys_.text() + " was closed"};
}

Result<void> SubscriberCore::prepare_for_plain_peers() {
  const bool asked_by_node = !options_.max_age && node_->hears_plain_peers_on(keys_);
  if (!options_.plain.value_or(asked_by_node)) return {};
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
  return plain_ == nullptr ? Result<void>() : plain_->listen(*node_->zenoh());
}

// Connecting

bool SubscriberCore::takes(const EntityAnnouncement& publisher) {
  if (closed_ || !keys_.intersects(publisher.topic)) return false;
  if (options_.schema == nullptr || !publisher.schema ||
      *publisher.schema == options_.schema->hash())
    return true;
  {
    const Lock lock(mutex_);
    if (mismatches_.size() >= kMaxAnnouncements ||
        !mismatches_.insert({publisher.context, publisher.entity}).second)
      return false;
    ++stats_.schema_mismatches;
  }
  node_->tell({.kind = FabricEventKind::schema_mismatch,
               .key = publisher.topic.text(),
               .node = node_->name_of_peer(publisher.context),
               .reason = "published with another schema than " + keys_.text() +
                         " was subscribed with: the two are not connected"});
  return false;
}

bool SubscriberCore::is_connected(const PublisherId& publisher) const {
  const auto now = connections();
  return std::ranges::any_of(now->entries,
                             [&](const Entry& entry) { return entry.publisher == publisher; });
}

void SubscriberCore::add_connected_to(std::set<ContextId>& contexts) const {
  const auto current = connections();
  for (const Entry& entry : current->entries)
    if (entry.feed->state() == Feed::State::open) contexts.insert(entry.publisher.context);
}

Result<void> SubscriberCore::connect(const EntityAnnouncement& publisher,
                                     const std::string& node_name,
                                     const std::shared_ptr<Link>& link) {
  const PublisherId id{publisher.context, publisher.entity};
  Feed::Options options{.window = Window::said(options_.window, kPipeWindowBytes),
                        .max_held = options_.max_held,
                        .rate = options_.max_hz ? GapFinder::Rate::thinned : GapFinder::Rate::all};
  auto gaps = std::make_shared<PendingGaps>();
  {
    const Lock lock(mutex_);
    if (const auto found = seen_.find(id); found != seen_.end()) {
      options.seen = found->second.sample;
      gaps = found->second.gaps;
    }
  }
  const SubscriptionRequest request{.entity = publisher.entity,
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
  const auto on_over = [weak = weak_from_this(), context = context_] {
    context->schedule([weak] {
      if (const auto self = weak.lock()) self->drop_what_is_over();
    });
  };
  if (link->traits().slots_bound_window) options.window = options.window.without_bytes();
  std::shared_ptr<Feed> feed;
  TENDON_CHECK(context_->open_pipe(*link, opening, [&](std::uint32_t pipe) {
    return feed = std::make_shared<Feed>(context_, link, pipe, options, on_over);
  }));
  bool added = false;
  {
    const Lock lock(mutex_);
    // Two attempts may have come so far, when the announcement went and came meanwhile.
    const bool is_second = std::ranges::any_of(
        connections_->entries, [&](const Entry& entry) { return entry.publisher == id; });
    if (!closed_ && !is_second) {
      auto entries = connections_->entries;
      entries.push_back({id, publisher.topic.text(), node_name, feed, std::move(gaps)});
      replace(std::move(entries));
      added = true;
    }
  }
  if (!added) {
    feed->close();
    return usable("subscriber.connect");
  }
  context_->wake_others();
  drop_what_is_over();  // it may be over already, before it was in the list
  return {};
}

std::shared_ptr<const SubscriberCore::Connections> SubscriberCore::connections() const {
  const Lock lock(mutex_);
  return connections_;
}

void SubscriberCore::replace(std::vector<Entry> entries) {
  auto connections = std::make_shared<Connections>();
  note_newer(entries);
  for (const Entry& entry : entries) {
    Link* link = entry.feed->link().get();
    if (std::ranges::find(connections->links, link) == connections->links.end())
      connections->links.push_back(link);
  }
  connections->entries = std::move(entries);
  connections_ = std::move(connections);
  version_.fetch_add(1);
}

// Incarnations of a publisher: on one key, by nodes of one name.
void SubscriberCore::note_newer(std::vector<Entry>& entries) const {
  if (!options_.newest_only.value_or(options_.max_age.has_value())) return;
  const auto twins_of = [](const Entry& entry) { return std::tie(entry.key, entry.node); };
  const auto start_of = [](const Entry& entry) {
    return std::pair(entry.feed->link()->peer().incarnation, entry.publisher.context);
  };
  // Those of one key and name side by side, the newest last.
  std::ranges::sort(entries, {}, [&](const Entry& entry) {
    return std::tuple(twins_of(entry), start_of(entry), entry.publisher.entity);
  });
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    entry->newer.clear();
    for (auto other = entry + 1; other != entries.end(); ++other) {
      if (twins_of(*other) != twins_of(*entry)) break;
      if (start_of(*other) != start_of(*entry)) entry->newer.push_back(other->feed);
    }
  }
}

bool SubscriberCore::is_superseded(const Entry& entry) {
  return std::ranges::any_of(entry.newer, [](const auto& feed) {
    return !feed->link()->ended() && feed->state() == Feed::State::open;
  });
}

// A feed that is over, and of which everything was taken, goes. Unless the publisher itself has
// ended, it is connected again.
void SubscriberCore::drop_what_is_over() {
  const auto now = connections();
  std::vector<Entry> over;
  for (const Entry& entry : now->entries)
    if (entry.feed->is_over()) over.push_back(entry);
  if (over.empty()) return;
  std::vector<PublisherId> lost;
  std::vector<std::pair<std::string, Gap>> at_the_end;  // no sample follows it
  {
    const Lock lock(mutex_);
    auto entries = connections_->entries;
    for (const Entry& gone : over) {
      const auto removed =
          std::erase_if(entries, [&](const Entry& entry) { return entry.feed == gone.feed; });
      if (removed == 0) continue;  // another thread was faster
      const SampleHeader seen = gone.feed->seen();
      const auto at_end = gone.feed->take_last_gap();
      stats_.thinned += at_end.thinned;
      if (const auto& gap = at_end.missing) {
        stats_.missed += gap->last - gap->first + 1;
        at_the_end.emplace_back(
            gone.key, Gap{gone.node, seen.incarnation, gap->first, gap->last, gap->reason});
      }
      const Feed::State state = gone.feed->state();
      seen_.erase(gone.publisher);
      if (state == Feed::State::broken) ++stats_.violations;
      if (state != Feed::State::lost) continue;
      lost.push_back(gone.publisher);
      if (seen.sequence == 0) continue;
      // Most of so many are of publishers that will not come back.
      if (seen_.size() >= kMaxAnnouncements) seen_.erase(seen_.begin());
      seen_[gone.publisher] = {seen, gone.gaps};
    }
    replace(std::move(entries));
  }
  for (const auto& [key, gap] : at_the_end) tell(key, gap);
  for (const Entry& gone : over) {
    if (gone.feed->state() == Feed::State::broken)
      log(LogLevel::warn, "subscriber.recv", gone.feed->why().message());
    gone.feed->close();
  }
  for (const PublisherId& publisher : lost) node_->connect_again(*this, publisher);
  context_->wake_others();
}

// Receiving

Result<Sample> SubscriberCore::recv(Deadline deadline) {
  const Busy busy(receiving_);
  if (!busy.mine()) {
    return Error{ErrorCode::busy, kWhere,
                 "another thread receives from the subscriber of " + keys_.text()};
  }
  return receive(deadline);
}

Result<Sample> SubscriberCore::receive(Deadline deadline) {
  TENDON_CHECK(usable(kWhere));
  if (auto returned = take_returned()) return std::move(returned->sample);
  Sample sample;
  for (;;) {
    TENDON_CHECK(usable(kWhere));
    const std::uint64_t version = version_.load();
    const auto now = connections();
    Attempt result = Attempt::nothing;
    const bool done = context_->wait(WaitedLinks(now->links), deadline, [&] {
      if (context_->unusable() || closed_.load(std::memory_order_relaxed)) return true;
      result = version_.load() != version ? Attempt::look_again : try_recv(*now, sample);
      return result != Attempt::nothing;
    });
    if (result == Attempt::sample) {
      ++taken_count_;
      for (const Gap& gap : sample.gaps) tell(sample.key, gap);
      return sample;
    }
    TENDON_CHECK(usable(kWhere));
    if (result == Attempt::look_again) {
      drop_what_is_over();
      continue;
    }
    if (!done) return Error{ErrorCode::timeout, kWhere, nothing_came(now->entries.size())};
  }
}

std::optional<SubscriberCore::Numbered> SubscriberCore::take_returned() {
  const Lock lock(mutex_);
  if (returned_.empty()) return std::nullopt;
  auto first = returned_.extract(returned_.begin());
  return Numbered{first.key(), std::move(first.mapped())};
}

void SubscriberCore::put_back(std::uint64_t number, Sample sample) {
  {
    const Lock lock(mutex_);
    if (closed_) return;
    returned_.emplace(number, std::move(sample));
  }
  context_->wake_others();
}

// Receiving without a thread that waits

Completion<Sample> SubscriberCore::recv_async() {
  auto posted = std::make_shared<PostedSample>(shared_from_this());
  if (auto still = usable(kWhere); !still) {
    (void)posted->finish(std::move(still).error());
  } else if (receiving_.exchange(true, std::memory_order_acquire)) {
    (void)posted->finish(
        Error{ErrorCode::busy, kWhere, "another receiver waits for samples of " + keys_.text()});
  } else {
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
    Sample sample;
    switch (try_recv(*connections(), sample)) {
      case Attempt::nothing:
        return std::nullopt;
      case Attempt::sample:
        for (const Gap& gap : sample.gaps) tell(sample.key, gap);
        return Numbered{++taken_count_, std::move(sample)};
      case Attempt::look_again:
        drop_what_is_over();
    }
  }
}

bool SubscriberCore::go_on(PostedSample& posted) {
  const Lock lock(posting_);  // until it is complete: whatever drops it waits for that
  if (posted_.get() != &posted) return false;
  auto taken = take_now();
  if (!taken) return true;
  const auto kept = std::exchange(posted_, nullptr);
  receiving_.store(false, std::memory_order_release);
  if (*taken) {
    posted.came_as((*taken)->number);
    complete(posted, std::move((*taken)->sample));
  } else {
    complete(posted, std::move(*taken).error());
  }
  return false;
}

void SubscriberCore::complete(PostedSample& posted, Result<Sample> result) {
  if (auto run = posted.finish(std::move(result))) context_->schedule(std::move(run));
  context_->note_completed();
  context_->wake_others();
}

void SubscriberCore::drive(PostedSample& posted, Deadline deadline) {
  for (bool done = true; done && !posted.finished();) {
    const std::uint64_t version = version_.load();
    const auto now = connections();
    done = context_->wait(WaitedLinks(now->links), deadline, [&] {
      (void)go_on(posted);
      return posted.finished() || version_.load() != version;
    });
  }
}

bool SubscriberCore::cancel(const PostedSample& posted) {
  if (context_->forked()) return false;
  const Lock lock(posting_);
  if (posted_.get() != &posted) return false;
  const auto found = std::exchange(posted_, nullptr);
  receiving_.store(false, std::memory_order_release);
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
               .gap = gap});
}

std::string SubscriberCore::nothing_came(std::size_t publisher_count) const {
  std::string text =
      "nothing came on " + keys_.text() + " from " + std::to_string(publisher_count) +
      (publisher_count == 1 ? " publisher" : " publishers") +
      (plain_ == nullptr ? "" : " or from plain Zenoh peers") + " before the deadline";
  const Lock lock(mutex_);
  if (stats_.expired != 0) {
    text += "; " + std::to_string(stats_.expired) +
            " samples so far were older than max_age, or of unknown age";
  }
  return text;
}

SubscriberCore::Attempt SubscriberCore::try_recv(const Connections& connections, Sample& sample) {
  // Plain peers have the last turn, together.
  const std::size_t feed_count = connections.entries.size();
  const std::size_t count = feed_count + (plain_ == nullptr ? 0 : 1);
  Attempt result = Attempt::nothing;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = (next_ + i) % count;
    if (place == feed_count) {
      if (!take_plain(sample)) continue;
      next_ = place + 1;
      return Attempt::sample;
    }
    const Entry& entry = connections.entries[place];
    while (auto taken = entry.feed->take()) {
      if (!accept(entry, *std::move(taken), sample)) continue;
      next_ = place + 1;
      return Attempt::sample;
    }
    if (entry.feed->is_over()) result = Attempt::look_again;
  }
  return result;
}

bool SubscriberCore::take_plain(Sample& sample) {
  auto taken = plain_->take();
  if (!taken) return false;
  sample = *std::move(taken);
  const Lock lock(mutex_);
  ++stats_.received;
  return true;
}

bool SubscriberCore::accept(const Entry& entry, Feed::Taken taken, Sample& sample) {
  if (is_superseded(entry)) {
    const Lock lock(mutex_);
    ++stats_.superseded;
    return false;
  }
  std::optional<std::chrono::nanoseconds> age;
  if (options_.max_age) {
    const std::int64_t now = boot_time_ns();
    age = age_at_most(taken.header, context_->links().clock_of(*entry.feed->link(), now), now);
  }
  if (taken.missing) entry.gaps->add(*taken.missing);
  const Lock lock(mutex_);
  stats_.thinned += taken.thinned;
  if (taken.missing) stats_.missed += taken.missing->last - taken.missing->first + 1;
  if (taken.copied) ++stats_.copied;
  if (options_.max_age && (!age || *age > *options_.max_age)) {
    const std::uint64_t sequence = taken.header.sequence;
    entry.gaps->add({sequence, sequence, GapReason::expired});
    ++stats_.expired;
    ++stats_.missed;
    return false;
  }
  if (options_.schema != nullptr &&
      (!taken.tensors || taken.tensors->schema()->hash() != options_.schema->hash())) {
    ++stats_.schema_mismatches;
    return false;
  }
  ++stats_.received;
  sample = Sample{.key = entry.key,
                  .publisher = entry.node,
                  .incarnation = taken.header.incarnation,
                  .sequence = taken.header.sequence,
                  .stamp = taken.header.stamp,
                  .age = age,
                  .tensors = std::move(taken.tensors),
                  .bytes = std::move(taken.bytes)};
  for (const PendingGaps::Missing& missing : entry.gaps->take()) {
    sample.gaps.push_back(
        {entry.node, taken.header.incarnation, missing.first, missing.last, missing.reason});
  }
  return true;
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
    there = connections()->entries.size();
    return there >= count;
  });
  if (error) return *std::move(error);
  if (done) return {};
  return Error{ErrorCode::timeout, kHere,
               keys_.text() + " is connected to " + std::to_string(there) + " publishers of " +
                   std::to_string(count) + " before the deadline"};
}

SubscriberStats SubscriberCore::stats() const {
  if (context_->forked()) return {};
  const auto plain = plain_ == nullptr ? PlainInbox::Counts() : plain_->counts();
  const Lock lock(mutex_);
  SubscriberStats stats = stats_;
  stats.publishers = connections_->entries.size();
  stats.schema_mismatches += plain.mismatches;
  stats.plain_received = plain.taken;
  stats.plain_dropped = plain.dropped;
  stats.plain_refused = plain.refused;
  stats.plain_deleted = plain.deleted;
  return stats;
}

void SubscriberCore::close() {
  if (context_->forked() || closed_.exchange(true)) return;
  node_->remove(*this);
  std::vector<Entry> entries;
  {
    const Lock lock(mutex_);
    entries = connections_->entries;
    replace({});
    returned_.clear();
  }
  for (const Entry& entry : entries) entry.feed->close();
  if (plain_ != nullptr) plain_->close();
  context_->wake_others();
  std::shared_ptr<PostedSample> posted;
  {
    const Lock lock(posting_);
    posted = posted_;
  }
  if (posted != nullptr) (void)go_on(*posted);  // it ends
}

}  // namespace tendon::v0::detail
