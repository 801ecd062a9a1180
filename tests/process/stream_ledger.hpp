// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/fabric/sample.hpp>
#include <utility>
#include <vector>

namespace tendon::test {

/// Records the samples and events of one subscriber, stream by stream, and their faults. Each
/// sample of a stream, from the first one seen, is delivered once or is in one gap. Each stream
/// that began ends once; nothing follows the end except after another `came`.
///
/// Owns:    counters of each stream.
/// Threads: none of its own.
/// Errors:  each is passed to `on_wrong`.
/// Blocks:  never.
/// Cost:    a look-up for each sample.
class StreamLedger {
 public:
  /// Whether samples may be missing that are in no gap: because of max_hz or newest_only.
  enum class Holes : std::uint8_t { none, allowed };
  using Id = std::pair<std::uint64_t, std::uint32_t>;  ///< incarnation and entity
  using OnWrong = std::function<void(const std::string&)>;

  StreamLedger(Holes holes, OnWrong on_wrong) : holes_(holes), on_wrong_(std::move(on_wrong)) {}

  /// Records a sample or an end from recv().
  void on_sample(const Sample& sample) {
    const Id id{sample.incarnation, sample.entity};
    Stream& stream = streams_[id];
    if (stream.over) wrong(id, "something follows an end that is final");
    if (std::exchange(stream.parted, false)) follows_an_end(id, sample);
    for (const Gap& gap : sample.gaps) {
      if (Id{gap.incarnation, gap.entity} != id) wrong(id, "a gap of another stream");
      if (gap.last < gap.first) wrong(id, "a gap that ends before it begins");
      expect(id, stream, gap.first);
      stream.next = gap.last + 1;
      missing_ += gap.count();
    }
    if (sample.ended) return end(id, stream, sample);
    expect(id, stream, sample.sequence);
    stream.next = sample.sequence + 1;
    stream.open = true;
    ++received_;
  }
  void on_event(const FabricEvent& event) {
    if (event.kind == FabricEventKind::came) ++came_;
    if (event.kind != FabricEventKind::ended) return;
    if (!event.ended) return on_wrong_("an event `ended` without its particulars");
    ++told_;
    const Id id{event.ended->incarnation, event.ended->entity};
    streams_[id].told.push_back(*event.ended);
  }
  /// How many of the begun streams have not ended, as events and as samples.
  [[nodiscard]] std::uint64_t open_count() const { return 2 * came_ - told_ - ended_; }
  /// Checks the totals after the last end.
  void finish() {
    if (came_ != told_ || came_ != ended_) {
      on_wrong_(std::to_string(came_) + " streams came, " + std::to_string(told_) +
                " ends were told and " + std::to_string(ended_) + " delivered");
    }
    for (const auto& [id, stream] : streams_) {
      if (stream.told != stream.delivered) wrong(id, "the ends told are not those delivered");
      if (stream.open) wrong(id, "it has no end");
    }
  }

  [[nodiscard]] std::uint64_t received() const { return received_; }
  [[nodiscard]] std::uint64_t missing() const { return missing_; }
  [[nodiscard]] std::uint64_t hole_count() const { return hole_count_; }
  [[nodiscard]] std::uint64_t came() const { return came_; }
  [[nodiscard]] std::uint64_t ended() const { return ended_; }
  [[nodiscard]] std::uint64_t returned() const { return returned_; }

 private:
  struct Stream {
    std::uint64_t next = 0;  // 0: no sample was seen
    bool open = false;
    bool parted = false;  // its end was not final
    bool over = false;
    std::vector<tendon::Ended> told;
    std::vector<tendon::Ended> delivered;
  };

  void follows_an_end(const Id& id, const Sample& sample) {
    ++returned_;
    // Where samples may be left out, those after the end may be left out too.
    if (sample.gaps.empty() || holes_ == Holes::allowed) return;
    const GapReason reason = sample.gaps.front().reason;
    if (reason == GapReason::overflow || reason == GapReason::history)
      wrong(id, "it returned with a gap of reason " + std::string(to_string(reason)));
  }
  void expect(const Id& id, const Stream& stream, std::uint64_t sequence) {
    if (stream.next == 0 || sequence == stream.next) return;
    if (sequence < stream.next) {
      return wrong(id, "sample " + std::to_string(sequence) + " instead of " +
                           std::to_string(stream.next) + ": twice");
    }
    hole_count_ += sequence - stream.next;
    if (holes_ == Holes::none) {
      wrong(id, "samples " + std::to_string(stream.next) + " to " + std::to_string(sequence - 1) +
                    " are neither delivered nor in a gap");
    }
  }
  void end(const Id& id, Stream& stream, const Sample& sample) {
    const tendon::Ended& ended = *sample.ended;
    ++ended_;
    stream.delivered.push_back(ended);
    stream.open = false;
    if (Id{ended.incarnation, ended.entity} != id || ended.key != sample.key)
      wrong(id, "an end of another stream");
    if (ended.last_seen > ended.last_published) wrong(id, "more was seen than was published");
    if (stream.next == 0 && ended.last_seen != 0 && holes_ == Holes::none)
      wrong(id, "samples arrived, and none is delivered or in a gap");
    if (stream.next != 0) {
      expect(id, stream, ended.last_published + 1);
      if (holes_ == Holes::none) stream.next = ended.last_published + 1;
    }
    stream.over = ended.reason == EndReason::closed || ended.reason == EndReason::died;
    stream.parted = !stream.over;
  }
  void wrong(const Id& id, const std::string& what) const {
    std::ostringstream text;
    text << "stream " << id.first << '.' << id.second << ": " << what;
    on_wrong_(text.str());
  }

  const Holes holes_;
  const OnWrong on_wrong_;
  std::map<Id, Stream> streams_;
  std::uint64_t received_ = 0;
  std::uint64_t missing_ = 0;
  std::uint64_t hole_count_ = 0;
  std::uint64_t came_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t returned_ = 0;
};

}  // namespace tendon::test
