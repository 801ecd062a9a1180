// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "channel/channel.hpp"
#include "channel/sample_channel.hpp"
#include "fabric/samples/cursor.hpp"
#include "fabric/samples/last_receiver.hpp"

namespace tendon::v0::detail {

class PublisherCore;

/// One subscriber, as its publisher sees it: its channel, and its place in the history. A
/// subscriber sends credits and its end.
///
/// Owns:    its channel.
/// Threads: `Position` belongs to the publisher's lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock of the publisher for each credit.
class Subscription final : public ChannelEvents, public std::enable_shared_from_this<Subscription> {
 public:
  struct Position {
    /// Its place before a sample was shown to it.
    struct Before {
      Cursor cursor;
      std::uint64_t slots_until;
    };
    Cursor cursor;
    std::uint64_t late_until = 0;    ///< the newest sample when it arrived: it catches up with this
    std::uint64_t slots_until = 0;   ///< bytes shown up to its last sample in a slot, which is
                                     ///< included
    std::optional<Before> before{};  ///< of the last sample that was under way, or still is
    bool excused = false;            ///< it missed a deadline, and has taken nothing since
    bool over = false;               ///< the publisher has done with it
    bool told_of_receiver = false;  ///< that only the caller empties it; it has taken nothing since
    bool has_head_page = false;     ///< its reader was shown it, or needs none
    bool told_of_gpus = false;      ///< that its reader takes no samples on a GPU
  };

  Subscription(std::weak_ptr<PublisherCore> publisher, std::shared_ptr<Link> link,
               std::shared_ptr<SampleChannel> samples, std::uint32_t pipe, Cursor cursor,
               std::uint64_t late_until, std::shared_ptr<const LastReceiver> receiver)
      : position{cursor, late_until},
        publisher_(std::move(publisher)),
        samples_(std::move(samples)),
        channel_(
            std::move(link),
            {.pipe = pipe, .most_bytes = 0, .sending = &samples_->window(), .where = "publisher"},
            *this),
        receiver_(std::move(receiver)) {}

  [[nodiscard]] const std::shared_ptr<SampleChannel>& samples() const noexcept { return samples_; }
  [[nodiscard]] std::shared_ptr<MessageSink> sink() {
    return Channel::sink_of(shared_from_this(), channel_);
  }
  [[nodiscard]] Link& link() const noexcept { return channel_.link(); }
  [[nodiscard]] std::uint32_t pipe() const noexcept { return channel_.pipe(); }
  [[nodiscard]] const std::string& name() const noexcept { return link().peer_name(); }
  /// The thread that empties a subscriber of the publisher's own Context; null for any other.
  [[nodiscard]] const LastReceiver* receiver() const noexcept { return receiver_.get(); }

  // ChannelEvents
  void on_arrived() override;
  void on_room() override;
  void on_over() override;

  Position position;

 private:
  const std::weak_ptr<PublisherCore> publisher_;
  const std::shared_ptr<SampleChannel> samples_;
  Channel channel_;
  const std::shared_ptr<const LastReceiver> receiver_;
};

}  // namespace tendon::v0::detail
