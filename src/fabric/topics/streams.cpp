// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/streams.hpp"

#include <algorithm>
#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.connect";

// Orders incarnations of a publisher: on one key, by nodes of one name.
auto start_of(const Stream& stream) {
  return std::pair(stream.incarnation, stream.publisher.context);
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

bool Streams::is_open(const PublisherId& publisher) const {
  const auto found = streams_.find(publisher);
  return found != streams_.end() && found->second->feed->state() == Feed::State::open;
}

bool Streams::has_open(const ContextId& context) const {
  for (auto place = streams_.lower_bound(PublisherId{context, 0});
       place != streams_.end() && place->first.context == context; ++place)
    if (place->second->feed->state() == Feed::State::open) return true;
  return false;
}

std::shared_ptr<const Streams::Entry> Streams::entry_of(const Feed& feed) const {
  const auto found = entries_.find(&feed);
  return found == entries_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Stream>> Streams::of_key(const std::string& key) const {
  std::vector<std::shared_ptr<Stream>> streams;
  const auto [first, last] = of_key_.equal_range(key);
  for (auto place = first; place != last; ++place) streams.push_back(place->second);
  return streams;
}

Result<SampleHeader> Streams::goes_on_at(const PublisherId& publisher) const {
  if (const auto known = streams_.find(publisher); known != streams_.end()) {
    const Stream& stream = *known->second;
    if (stream.feed->state() == Feed::State::open)
      return Error{ErrorCode::busy, kWhere, "it is connected already"};
    std::size_t unread = 0;
    for (const auto& other : of_key(stream.key))
      if (other->publisher == publisher) unread += other->channels.size();
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
  std::shared_ptr<Stream> stream = streams_[publisher.publisher];
  const Came came = stream == nullptr ? Came::anew : Came::again;
  if (came == Came::anew) {
    stream = std::make_shared<Stream>(Stream{.publisher = publisher.publisher,
                                             .key = publisher.key,
                                             .node = publisher.node,
                                             .incarnation = publisher.incarnation,
                                             .feed = feed});
    streams_[publisher.publisher] = stream;
    of_key_.emplace(stream->key, stream);
    seen_.erase(publisher.publisher);
  }
  stream->feed = feed;
  stream->state = Stream::State::open;
  parted_.erase(publisher.publisher);
  pauses_.erase(publisher.publisher);
  Entry entry{stream, std::move(feed)};
  for (const auto& other : of_key(stream->key)) {
    const bool are_two = are_twins(*other, *stream);
    if (other->publisher == publisher.publisher ||
        (are_two && start_of(*other) < start_of(*stream)))
      entry.older.insert(entry.older.end(), other->channels.begin(), other->channels.end());
    if (are_two && other->state == Stream::State::parted &&
        other->incarnation < stream->incarnation) {
      tell_end(other, other->feed->ending().value_or(other->feed->given_up(EndReason::lost)),
               changes);
    }
  }
  put(std::move(entry), changes);
  return came;
}

void Streams::put(Entry entry, Changes& changes) {
  changes.entries_changed = true;
  const auto stream = entry.stream;
  const auto& link = entry.feed->link();
  stream->channels.push_back(entry.feed);
  const Feed* const feed = entry.feed.get();
  entries_.insert_or_assign(feed, std::make_shared<const Entry>(std::move(entry)));
  note_newer(stream->key);
  OnLink& on_link = links_[link.get()];
  on_link.link = link;
  if (++on_link.channels == 1) refresh_links(changes);
}

void Streams::take_out(const Entry& entry, Changes& changes) {
  changes.entries_changed = true;
  const auto stream = entry.stream;
  const auto feed = entry.feed;
  std::erase(stream->channels, feed);
  entries_.erase(feed.get());
  for (const auto& other : of_key(stream->key)) {
    for (const auto& channel : other->channels) {
      auto& known = entries_.at(channel.get());
      if (std::ranges::find(known->older, feed) == known->older.end()) continue;
      Entry changed = *known;
      std::erase(changed.older, feed);
      known = std::make_shared<const Entry>(std::move(changed));
    }
  }
  note_newer(stream->key);
  const auto on_link = links_.find(feed->link().get());
  if (--on_link->second.channels == 0) {
    links_.erase(on_link);
    refresh_links(changes);
  }
  end_what_was_read(stream->key, changes);
}

void Streams::refresh_links(Changes& changes) {
  auto connections = std::make_shared<Connections>();
  for (const auto& [link, on_link] : links_) {
    connections->kept.push_back(on_link.link);
    connections->links.push_back(on_link.link.get());
  }
  connections_ = std::move(connections);
  changes.connections_changed = true;
}

// The states of channels

Streams::Changes Streams::settle(Time now, const std::vector<std::shared_ptr<Feed>>& changed) {
  Changes changes;
  std::vector<std::shared_ptr<const Entry>> entries;
  for (const auto& feed : changed)
    if (auto entry = entry_of(*feed)) entries.push_back(std::move(entry));
  // Only those that were over before they are read: a link may be lost meanwhile.
  for (const auto& entry : entries)
    if (entry->feed->is_over()) changes.read_out.push_back(entry->feed);
  for (const auto& entry : entries) look_at(*entry, now, changes);
  for (const auto& feed : changes.read_out)
    if (const auto entry = entry_of(*feed)) take_out(*entry, changes);
  std::vector<std::shared_ptr<Stream>> parted;
  parted.reserve(parted_.size());
  for (const auto& [id, stream] : parted_) parted.push_back(stream);
  for (const auto& stream : parted) wait_on(stream, now, changes);
  end_pauses(now, changes);
  return changes;
}

// In the order in which the ends were reported. A stream that was read waits for an earlier one of
// the same publisher, or of an older incarnation, that has unread samples. Samples wait for the
// same.
void Streams::end_what_was_read(const std::string& key, Changes& changes) {
  auto told = of_key(key);
  std::erase_if(told, [](const auto& stream) { return stream->state != Stream::State::told; });
  std::ranges::sort(told, {}, [](const auto& stream) { return stream->told_as; });
  std::vector<std::shared_ptr<Stream>> unread;
  for (const auto& stream : told) {
    const bool waits = std::ranges::any_of(unread, [&](const auto& earlier) {
      return earlier->publisher == stream->publisher ||
             (are_twins(*earlier, *stream) && start_of(*earlier) < start_of(*stream));
    });
    if (waits || !stream->channels.empty())
      unread.push_back(stream);
    else
      finish(stream, changes);
  }
}

void Streams::look_at(const Entry& entry, Time now, Changes& changes) {
  const auto& stream = entry.stream;
  if (stream->state != Stream::State::open || entry.feed != stream->feed) return;
  if (const auto ending = entry.feed->ending()) return tell_end(stream, *ending, changes);
  if (entry.feed->state() != Feed::State::open) part(stream, now, changes);
}

void Streams::part(const std::shared_ptr<Stream>& stream, Time now, Changes& changes) {
  stream->state = Stream::State::parted;
  parted_[stream->publisher] = stream;
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
  // Forgotten publishers begin anew.
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

// A pause may last longer than the lease: the publisher returns after it.
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
  stream->told_as = ++ages_;
  stream->ending = ending;
  stream->ending.last_published = std::max(ending.last_published, last_seen);
  changes.told.push_back(stream->ended());
  if (ending.reason == EndReason::lost || ending.reason == EndReason::refused) remember(*stream);
  parted_.erase(stream->publisher);
  streams_.erase(stream->publisher);
  end_what_was_read(stream->key, changes);
}

void Streams::finish(const std::shared_ptr<Stream>& stream, Changes& changes) {
  changes.over.push_back({stream, stream->feed->take_last_gap(stream->ending)});
  const auto [first, last] = of_key_.equal_range(stream->key);
  for (auto place = first; place != last; ++place) {
    if (place->second != stream) continue;
    of_key_.erase(place);
    return;
  }
}

// A publisher that returns continues after its reported end.
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

std::vector<std::shared_ptr<Feed>> Streams::clear() {
  std::vector<std::shared_ptr<Feed>> feeds;
  feeds.reserve(entries_.size());
  for (const auto& [feed, entry] : entries_) feeds.push_back(entry->feed);
  connections_ = std::make_shared<const Connections>();
  entries_.clear();
  links_.clear();
  streams_.clear();
  parted_.clear();
  of_key_.clear();
  pauses_.clear();
  return feeds;
}

// Reading

// An older incarnation that continues delays nobody.
bool Streams::Entry::has_its_turn() const {
  return std::ranges::none_of(older, [](const auto& earlier) { return earlier->is_ending(); });
}

// Among the channels of one key and name those of later incarnations are newer.
void Streams::note_newer(const std::string& key) {
  if (!options_.newest_only) return;
  const auto streams = of_key(key);
  for (const auto& stream : streams) {
    std::vector<std::shared_ptr<Feed>> newer;
    for (const auto& other : streams) {
      if (other->node.is_twin_of(stream->node) && start_of(*stream) < start_of(*other))
        newer.insert(newer.end(), other->channels.begin(), other->channels.end());
    }
    for (const auto& channel : stream->channels) {
      auto& known = entries_.at(channel.get());
      if (known->newer == newer) continue;
      Entry changed = *known;
      changed.newer = newer;
      known = std::make_shared<const Entry>(std::move(changed));
    }
  }
}

}  // namespace tendon::v0::detail
