// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/ended.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/keys/publisher_id.hpp"
#include "fabric/samples/pending_gaps.hpp"
#include "fabric/topics/break_pace.hpp"
#include "fabric/topics/feed.hpp"
#include "fabric/topics/stream.hpp"
#include "fabric/topics/stream_changes.hpp"
#include "fabric/ways/peer_name.hpp"

namespace tendon::v0::detail {

/// The streams of one subscriber: the channels to read, their order, and the end of each stream.
///
/// Owns:    streams and feeds; the last seen samples of lost publishers.
/// Threads: none of its own: its owner's lock is held, which is taken before a link's receive lock.
///          Connections are immutable, except for the receiver's part of a stream.
/// Errors:  add(): busy.
/// Blocks:  never. It reads no clock.
/// Cost:    for each change: looks into trees, and at the streams of one key.
class Streams {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Entry = StreamEntry;
  using Connections = StreamLinks;
  using Candidate = StreamCandidate;
  using Changes = StreamChanges;
  struct Options {
    std::chrono::milliseconds lease{};
    GapFinder::Rate rate = GapFinder::Rate::all;
    bool newest_only = false;
  };
  explicit Streams(const Options& options)
      : options_(options), connections_(std::make_shared<const Connections>()) {}

  [[nodiscard]] const std::shared_ptr<const Connections>& connections() const noexcept {
    return connections_;
  }
  /// The number of channels that are not read to the end.
  [[nodiscard]] std::size_t channel_count() const noexcept { return entries_.size(); }
  [[nodiscard]] bool is_open(const PublisherId& publisher) const;
  /// True if a publisher of this Context has an open channel.
  [[nodiscard]] bool has_open(const ContextId& context) const;
  /// Null: the channel was closed.
  [[nodiscard]] std::shared_ptr<const Entry> entry_of(const Feed& feed) const;
  /// The sample after which a new channel to this publisher continues; a sequence of 0: at its
  /// history. Errors: busy, when it has one, or two that are not read to the end.
  [[nodiscard]] Result<SampleHeader> goes_on_at(const PublisherId& publisher) const;
  enum class Came : std::uint8_t { anew, again };
  /// Adds the open channel `feed`. A waiting stream with the same announced name and key, of an
  /// earlier incarnation, has ended. Errors: as goes_on_at().
  [[nodiscard]] Result<Came> add(const Candidate& publisher, std::shared_ptr<Feed> feed,
                                 Changes& changes);
  /// Handles the changes of these channels, and of waiting streams.
  [[nodiscard]] Changes settle(Time now, const std::vector<std::shared_ptr<Feed>>& changed);
  /// Drops everything.
  [[nodiscard]] std::vector<std::shared_ptr<Feed>> clear();

  /// The most lost publishers that are remembered, because they may return.
  static constexpr std::size_t kMostRemembered = 4096;

 private:
  struct Seen {
    SampleHeader sample;
    std::uint64_t age = 0;
  };
  using OfKey = std::multimap<std::string_view, std::shared_ptr<Stream>>;
  void look_at(const Entry& entry, Time now, Changes& changes);
  void part(const std::shared_ptr<Stream>& stream, Time now, Changes& changes);
  void wait_on(const std::shared_ptr<Stream>& stream, Time now, Changes& changes);
  void end_pauses(Time now, Changes& changes);
  void end_what_was_read(const std::string& key, Changes& changes);
  void tell_end(const std::shared_ptr<Stream>& stream, const Feed::Ending& ending,
                Changes& changes);
  /// Ends a stream whose end was reported, and which was read to it.
  void finish(const std::shared_ptr<Stream>& stream, Changes& changes);
  void remember(const Stream& stream);
  [[nodiscard]] std::vector<std::shared_ptr<Stream>> of_key(const std::string& key) const;
  void put(Entry entry, Changes& changes);
  void take_out(const Entry& entry, Changes& changes);
  void note_newer(const std::string& key);
  void refresh_links(Changes& changes);

  const Options options_;
  std::shared_ptr<const Connections> connections_;
  std::map<PublisherId, std::shared_ptr<Stream>> streams_;  // open or parted
  std::map<PublisherId, std::shared_ptr<Stream>> parted_;
  OfKey of_key_;  // all that are not over, by the text of their key
  std::unordered_map<const Feed*, std::shared_ptr<const Entry>> entries_;
  struct OnLink {
    std::shared_ptr<Link> link;
    std::size_t channels = 0;
  };
  std::map<const Link*, OnLink> links_;
  std::map<PublisherId, Seen> seen_;
  std::map<PublisherId, BreakPace> breaks_;
  std::map<PublisherId, Time> pauses_;  // of publishers that broke their channels
  std::uint64_t ages_ = 0;
};

}  // namespace tendon::v0::detail
