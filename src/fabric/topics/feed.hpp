// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/fabric/gap.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "channel/body_reader.hpp"
#include "channel/channel.hpp"
#include "fabric/samples/gap_finder.hpp"
#include "fabric/samples/sample_header.hpp"
#include "fabric/topics/feed_queue.hpp"
#include "fabric/topics/taken_sample.hpp"
#include "memory/segment.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The samples of one publisher at a subscriber, over one link.
///
/// Samples that arrived before the publisher's end, or before its link was lost, are delivered.
/// None is once it broke the protocol: by a descriptor, a window or a segment. An unreadable sample
/// is missing, and ends nothing.
///
/// Owns:    its channel.
/// Threads: take() by one thread at a time; the rest at any time.
/// Errors:  reported by state() and why().
/// Blocks:  never.
/// Cost:    a move for each sample; a copy if more than `max_held` are kept.
class Feed final : public ChannelEvents, public std::enable_shared_from_this<Feed> {
 public:
  using State = Channel::State;
  using Taken = TakenSample;
  using Ending = StreamEnding;
  struct Options {
    Window window;
    std::uint32_t max_held = 0;
    GapFinder::Rate rate = GapFinder::Rate::all;
    /// The last sample that was taken over another link; a sequence of 0: none.
    SampleHeader seen{};
  };
  /// Under the link's receive lock, `queue` is told when there is something to take, when nothing
  /// more will arrive, and when more is known of the end.
  Feed(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t pipe,
       const Options& options, std::shared_ptr<FeedQueue> queue);

  [[nodiscard]] const std::shared_ptr<Link>& link() const noexcept {
    return channel_.shared_link();
  }
  [[nodiscard]] std::shared_ptr<MessageSink> sink() {
    return Channel::sink_of(shared_from_this(), channel_);
  }
  /// Repeats earlier words to the queue, now that its subscriber knows it.
  void tell_again();
  /// The next sample; empty when none is here now, nor at the other end of the link.
  [[nodiscard]] std::optional<Taken> take();
  /// True if nothing will arrive any more, and everything was taken.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] State state() const { return channel_.state(); }
  /// True if its channel has ended, or its end is known and follows untaken samples.
  [[nodiscard]] bool is_ending() const;
  /// The reason if it is lost or broken.
  [[nodiscard]] Error why() const;
  /// Empty while the publisher may continue: a lost link is no end.
  [[nodiscard]] std::optional<Ending> ending();
  /// The same if its subscriber waits for no new link.
  [[nodiscard]] Ending given_up(EndReason reason);
  /// The last sample that arrived, taken or not, here or before: a new channel continues after it.
  [[nodiscard]] SampleHeader reached();
  /// The missing samples at this end, which no sample follows.
  [[nodiscard]] GapFinder::Found take_last_gap(const Ending& ending);
  /// Says the end to the publisher, and drops waiting samples.
  void close();

  // ChannelEvents
  void on_arrived() override { wait_if_there_is_more(); }
  void on_over() override;
  void on_end_said(const Descriptor&) override { queue_->note_changed(*this); }
  void on_end_read(const Descriptor& end) override;
  void on_head(std::uint64_t sequence) override;
  Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) override;
  void on_death_proved() override { queue_->note_changed(*this); }

 private:
  friend class FeedQueue;
  struct Message;
  /// Takes the next sample from the inbox. False: none is here.
  [[nodiscard]] bool next_message(Message& message);
  [[nodiscard]] Taken read(Message&& message);
  [[nodiscard]] Result<void> read_content(Message& message, Taken& taken);
  [[nodiscard]] Result<void> read_direct(Message& message, Taken& taken);
  void note_reached(const SampleHeader& header) TENDON_REQUIRES(channel_.receive_mutex());
  void look_at_what_waits() TENDON_REQUIRES(channel_.receive_mutex());
  [[nodiscard]] std::uint64_t last_known() const TENDON_REQUIRES(channel_.receive_mutex());
  [[nodiscard]] std::optional<std::uint64_t> head() const TENDON_REQUIRES(channel_.receive_mutex());
  void wait_if_there_is_more();
  void ask_again(Error why) TENDON_EXCLUDES(channel_.receive_mutex());

  const std::shared_ptr<ContextCore> context_;
  const std::shared_ptr<FeedQueue> queue_;
  FeedQueue::Place place_{};  // in the queue
  const BodyReader bodies_;
  const std::shared_ptr<DirectViews> views_ = std::make_shared<DirectViews>();
  Channel channel_;
  GapFinder gaps_ TENDON_GUARDED_BY(channel_.receive_mutex());
  SampleHeader reached_ TENDON_GUARDED_BY(channel_.receive_mutex());  // or a sequence of 0
  SampleHeader left_ TENDON_GUARDED_BY(channel_.receive_mutex());     // the last one taken from the
                                                                      // inbox
  SampleHeader before_ TENDON_GUARDED_BY(channel_.receive_mutex());   // left_, one sample ago
  GapFinder::Found last_gap_ TENDON_GUARDED_BY(channel_.receive_mutex());
  std::uint64_t heard_ TENDON_GUARDED_BY(channel_.receive_mutex()) = 0;  // by words of kind `head`
  std::shared_ptr<Segment> head_page_ TENDON_GUARDED_BY(channel_.receive_mutex());  // or null
  bool taking_ TENDON_GUARDED_BY(channel_.receive_mutex()) = false;  // a receiver looks, or reads
  bool untold_slot_ TENDON_GUARDED_BY(channel_.receive_mutex()) = false;  // taken since the credit
};

}  // namespace tendon::v0::detail
