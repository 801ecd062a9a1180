// SPDX-License-Identifier: Apache-2.0
#include "fabric/streams.hpp"

#include <algorithm>
#include <tendon/observe/log.hpp>
#include <tuple>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.connect";

// Incarnations of a publisher: on one key, by nodes of one name.
auto start_of(const Streams::Entry& entry) {
  return std::pair(entry.stream->incarnation, entry.stream->publisher.context);
}

bool are_twins(const Stream& one, const Stream& other) {
  return one.key == other.key && one.node.is_twin_of(other.node) &&
         one.publisher.context != other.publisher.context;
}

}  // namespace

Ended Stream::ended() const {
  return {.publisher = node.text,
          .entity = publisher.entity,
          .key = key,
          .incarnation = incarnation,
          .last_seen = last_seen,
          .last_published = ending.last_published,
          .exact = ending.exact,
          .reason = ending.reason};
}

std::vector<Gap> Stream::take_gaps(std::uint64_t of_incarnation) {
  std::vector<Gap> taken;
  for (const PendingGaps::Missing& missing : gaps.take()) {
    taken.push_back(
        {node.text, of_incarnation, missing.first, missing.last, missing.reason, publisher.entity});
  }
  return taken;
}

// Connecting

std::size_t Streams::open_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      connections_->entries,
      [](const Entry& entry) { return entry.feed->state() == Feed::State::open; }));
}

Result<SampleHeader> Streams::goes_on_at(const PublisherId& publisher) const {
  if (const auto known = streams_.find(publisher); known != streams_.end()) {
    const Stream& stream = *known->second;
    if (stream.feed->state() == Feed::State::open)
      return Error{ErrorCode::busy, kWhere, "it is connected already"};
    const auto unread = std::ranges::count_if(connections_->entries, [&](const Entry& entry) {
      return entry.stream->publisher == publisher;
    });
    // A link that breaks again and again must not fill the memory of a subscriber that does not
    // read.
    if (unread > 1) return Error{ErrorCode::busy, kWhere, "two channels wait to be read out"};
    return stream.feed->reached();
  }
  const auto seen = seen_.find(publisher);
  return seen == seen_.end() ? SampleHeader{} : seen->second.sample;
}

Result<Streams::Came> Streams::add(const Candidate& publisher, std::shared_ptr<Feed> feed,
                                   Changes& changes) {
  TENDON_CHECK(goes_on_at(publisher.publisher));
  std::shared_ptr<Stream>& stream = streams_[publisher.publisher];
  const Came came = stream == nullptr ? Came::anew : Came::again;
  if (came == Came::anew) {
    stream = std::make_shared<Stream>(Stream{.publisher = publisher.publisher,
                                             .key = publisher.key,
                                             .node = publisher.node,
                                             .incarnation = publisher.incarnation,
                                             .feed = feed});
    seen_.erase(publisher.publisher);
  }
  stream->feed = feed;
  stream->state = Stream::State::open;
  pauses_.erase(publisher.publisher);
  Entry entry{stream, std::move(feed)};
  auto entries = connections_->entries;
  for (const Entry& other : entries) {
    const bool is_earlier =
        other.stream->publisher == publisher.publisher ||
        (are_twins(*other.stream, *stream) && start_of(other) < start_of(entry));
    if (is_earlier) entry.older.push_back(other.feed);
  }
  std::vector<std::shared_ptr<Stream>> superseded;
  for (const auto& [id, other] : streams_) {
    if (other->state == Stream::State::parted && are_twins(*other, *stream) &&
        other->incarnation < stream->incarnation)
      superseded.push_back(other);
  }
  for (const auto& other : superseded)
    tell_end(other, other->feed->ending().value_or(other->feed->given_up(EndReason::lost)),
             changes);
  entries.push_back(std::move(entry));
  replace(std::move(entries));
  changes.connections_changed = true;
  return came;
}

// What becomes of channels

Streams::Changes Streams::settle(Time now) {
  Changes changes;
  // Those alone that were over before they are looked at: a link may be lost meanwhile.
  for (const Entry& entry : connections_->entries)
    if (entry.feed->is_over()) changes.read_out.push_back(entry.feed);
  for (const Entry& entry : connections_->entries) look_at(entry, now, changes);
  auto entries = connections_->entries;
  std::erase_if(entries, [&](const Entry& entry) {
    return std::ranges::find(changes.read_out, entry.feed) != changes.read_out.end();
  });
  if (!changes.read_out.empty()) {
    for (Entry& entry : entries) {
      std::erase_if(entry.older, [&](const auto& feed) {
        return std::ranges::find(changes.read_out, feed) != changes.read_out.end();
      });
    }
    replace(std::move(entries));
    changes.connections_changed = true;
  }
  std::vector<std::shared_ptr<Stream>> parted;
  for (const auto& [id, stream] : streams_)
    if (stream->state == Stream::State::parted) parted.push_back(stream);
  for (const auto& stream : parted) wait_on(stream, now, changes);
  end_pauses(now, changes);
  std::erase_if(told_, [&](const auto& stream) {
    if (!is_read(*stream)) return false;
    changes.over.push_back({stream, stream->feed->take_last_gap(stream->ending)});
    return true;
  });
  return changes;
}

void Streams::look_at(const Entry& entry, Time now, Changes& changes) {
  const auto& stream = entry.stream;
  if (stream->state != Stream::State::open || entry.feed != stream->feed) return;
  if (const auto ending = entry.feed->ending()) return tell_end(stream, *ending, changes);
  if (entry.feed->state() != Feed::State::open) part(stream, now, changes);
}

void Streams::part(const std::shared_ptr<Stream>& stream, Time now, Changes& changes) {
  stream->state = Stream::State::parted;
  stream->parted_at = now;
  const Feed& feed = *stream->feed;
  const bool is_broken = feed.state() == Feed::State::broken;
  const bool is_beyond_limit =
      !is_broken && !feed.link()->ended() && feed.why().code == ErrorCode::limit_exceeded;
  if (!is_broken && !is_beyond_limit) return changes.again.push_back(stream->publisher);
  const auto next = breaks_[stream->publisher].on_break(now);
  using By = Changes::Broken::By;
  changes.broken.push_back({.stream = stream,
                            .why = feed.why(),
                            .by = is_broken ? By::violation : By::limit,
                            .tell = is_broken ? next.tell : next.is_first});
  // Those that are not remembered begin anew.
  if (breaks_.size() > kMostRemembered) breaks_.erase(breaks_.begin());
  if (pauses_.size() < kMostRemembered) pauses_[stream->publisher] = now + next.pause;
}

void Streams::wait_on(const std::shared_ptr<Stream>& stream, Time now, Changes& changes) {
  if (const auto ending = stream->feed->ending()) return tell_end(stream, *ending, changes);
  const Time due = stream->parted_at + options_.lease;
  if (now < due) {
    changes.next = std::min(changes.next.value_or(due), due);
    return;
  }
  const EndReason reason = stream->feed->link()->ended() ? EndReason::lost : EndReason::refused;
  tell_end(stream, stream->feed->given_up(reason), changes);
}

// A pause may last longer than the lease: the publisher returns behind it.
void Streams::end_pauses(Time now, Changes& changes) {
  std::erase_if(pauses_, [&](const auto& pause) {
    if (now < pause.second) {
      changes.next = std::min(changes.next.value_or(pause.second), pause.second);
      return false;
    }
    changes.again.push_back(pause.first);
    return true;
  });
}

void Streams::tell_end(const std::shared_ptr<Stream>& stream, const Feed::Ending& ending,
                       Changes& changes) {
  const std::uint64_t last_seen = stream->feed->reached().sequence;
  stream->last_seen = last_seen;
  stream->state = Stream::State::told;
  stream->ending = ending;
  stream->ending.last_published = std::max(ending.last_published, last_seen);
  changes.told.push_back(stream->ended());
  if (ending.reason == EndReason::lost || ending.reason == EndReason::refused) remember(*stream);
  told_.push_back(stream);
  streams_.erase(stream->publisher);
}

// A publisher that returns goes on behind what its end had said.
void Streams::remember(const Stream& stream) {
  SampleHeader sample = stream.feed->reached();
  if (sample.sequence == 0) return;
  if (options_.rate == GapFinder::Rate::all) sample.sequence = stream.ending.last_published;
  if (seen_.size() >= kMostRemembered) {
    seen_.erase(
        std::ranges::min_element(seen_, {}, [](const auto& known) { return known.second.age; }));
  }
  seen_[stream.publisher] = {sample, ++ages_};
}

bool Streams::is_read(const Stream& stream) const {
  return std::ranges::none_of(connections_->entries,
                              [&](const Entry& entry) { return entry.stream.get() == &stream; });
}

std::vector<std::shared_ptr<Feed>> Streams::clear() {
  std::vector<std::shared_ptr<Feed>> feeds;
  for (const Entry& entry : connections_->entries) feeds.push_back(entry.feed);
  replace({});
  streams_.clear();
  told_.clear();
  pauses_.clear();
  return feeds;
}

// Reading

void Streams::replace(std::vector<Entry> entries) {
  auto connections = std::make_shared<Connections>();
  note_newer(entries);
  for (const Entry& entry : entries) {
    Link* link = entry.feed->link().get();
    if (std::ranges::find(connections->links, link) == connections->links.end())
      connections->links.push_back(link);
  }
  connections->entries = std::move(entries);
  connections_ = std::move(connections);
}

void Streams::note_newer(std::vector<Entry>& entries) const {
  if (!options_.newest_only) return;
  // Those of one key and name side by side, the newest last; a publisher's channels in their order.
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) {
    return std::tuple(std::string_view(entry.stream->key), entry.stream->node.announced,
                      std::string_view(entry.stream->node.text), start_of(entry),
                      entry.stream->publisher.entity);
  });
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    entry->newer.clear();
    for (auto other = entry + 1; other != entries.end(); ++other) {
      const bool same_name = other->stream->key == entry->stream->key &&
                             other->stream->node.is_twin_of(entry->stream->node);
      if (!same_name) break;
      if (start_of(*other) != start_of(*entry)) entry->newer.push_back(other->feed);
    }
  }
}

}  // namespace tendon::v0::detail
