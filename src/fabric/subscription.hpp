// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "channel/sample_channel.hpp"
#include "fabric/cursor.hpp"
#include "fabric/last_receiver.hpp"
#include "transport/message_sink.hpp"

namespace tendon::v0::detail {

class PublisherCore;

/// One subscriber of a publisher, as the publisher sees it: its channel, and its place in the
/// history.
///
/// Owns:    its channel.
/// Threads: as a sink under the link's receive lock. `Position` belongs to the publisher's lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock of the publisher for each credit.
class Subscription final : public MessageSink, public std::enable_shared_from_this<Subscription> {
 public:
  struct Position {
    /// Where it was before a sample was shown to it.
    struct Before {
      Cursor cursor;
      std::uint64_t slots_until;
    };
    Cursor cursor;
    std::uint64_t late_until = 0;    ///< the newest sample when it came: what it catches up with
    std::uint64_t slots_until = 0;   ///< bytes shown up to its last sample in a slot, this included
    std::optional<Before> before{};  ///< of the last sample that was under way, or still is
    bool excused = false;            ///< it let a deadline pass, and has taken nothing since
    bool over = false;               ///< the publisher has done with it
    bool told_of_receiver = false;   ///< that nobody else empties it; it has taken nothing since
    bool has_head_page = false;      ///< its reader was shown it, or needs none
  };

  Subscription(std::weak_ptr<PublisherCore> publisher, std::shared_ptr<SampleChannel> channel,
               std::uint32_t pipe, Cursor cursor, std::uint64_t late_until,
               std::shared_ptr<const LastReceiver> receiver)
      : position{cursor, late_until},
        publisher_(std::move(publisher)),
        channel_(std::move(channel)),
        pipe_(pipe),
        receiver_(std::move(receiver)) {}

  [[nodiscard]] const std::shared_ptr<SampleChannel>& channel() const noexcept { return channel_; }
  [[nodiscard]] Link& link() const noexcept { return channel_->link(); }
  [[nodiscard]] std::uint32_t pipe() const noexcept { return pipe_; }
  [[nodiscard]] const std::string& name() const noexcept { return link().peer_name(); }
  /// The thread that empties a subscriber of the publisher's own Context; null for any other.
  [[nodiscard]] const LastReceiver* receiver() const noexcept { return receiver_.get(); }

  // MessageSink: a subscriber sends credits, and its end.
  void on_message(Incoming&& incoming) override;
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return false; }
  void on_transfer_ended(const Transfer&) override {}
  void on_link_failed(const Error& error) override;

  Position position;

 private:
  const std::weak_ptr<PublisherCore> publisher_;
  const std::shared_ptr<SampleChannel> channel_;
  const std::uint32_t pipe_;
  const std::shared_ptr<const LastReceiver> receiver_;
};

}  // namespace tendon::v0::detail
