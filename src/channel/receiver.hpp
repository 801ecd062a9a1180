// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/result.hpp>
#include <utility>

#include "channel/inbox.hpp"
#include "channel/receive_window.hpp"
#include "channel/schema_table.hpp"

namespace tendon::v0::detail {

/// The receiving side of a channel: its untaken messages, in order; what its sender may send; the
/// schemas that it announced.
///
/// Owns:    messages, and a share of each schema.
/// Threads: the link's receive lock is held for every call.
/// Errors:  faults of the peer; those of a schema have a text that follows its name.
/// Blocks:  never.
/// Cost:    a move and a few additions for each message.
class ChannelReceiver {
 public:
  /// `cap_bytes` is that of this side, `budget` that of the link.
  ChannelReceiver(std::uint32_t pipe, Window window, std::uint64_t cap_bytes, HeldBytes& budget)
      : pipe_(pipe), window_(window, cap_bytes), budget_(budget), schemas_(cap_bytes, &budget) {}

  // Arriving messages
  /// True if this message may arrive at all. Asked before there is memory for it.
  [[nodiscard]] bool admits(const Descriptor& descriptor) const noexcept {
    return !is_content(descriptor) || window_.admits(descriptor.payload_bytes);
  }
  /// The possible faults of a peer.
  enum class Fault : std::uint8_t { none, repeated, beyond_window };
  /// Adds the message, unless it is a fault.
  [[nodiscard]] Fault accept(Incoming&& incoming) {
    const Descriptor& descriptor = incoming.descriptor;
    if (is_content(descriptor) || descriptor.kind == MessageKind::schema) {
      if (is_known(descriptor.sequence)) return Fault::repeated;
      last_sequence_ = descriptor.sequence;
    }
    // Beyond the window a peer may only announce schemas and end.
    if (inbox_.size() >= std::size_t{2} * window().messages + 16) return Fault::beyond_window;
    if (is_content(descriptor)) window_.come(descriptor.payload_bytes);
    inbox_.push_back(std::move(incoming));
    return Fault::none;
  }
  /// Handles the end of a transfer that accept() had added. An aborted one leaves at once: its
  /// sender may begin and abort as often as it likes.
  void on_transfer_ended(const Transfer& transfer) {
    if (!transfer.aborted) return;
    on_aborted(transfer.descriptor);
    inbox_.drop_aborted();
  }
  /// Handles an aborted transfer that accept() had added.
  void on_aborted(const Descriptor& descriptor) noexcept {
    if (is_content(descriptor)) window_.drop(descriptor.payload_bytes);
  }
  /// True if this number was used.
  [[nodiscard]] bool is_known(std::uint64_t sequence) const noexcept {
    return sequence <= last_sequence_;
  }

  // Waiting messages
  [[nodiscard]] bool empty() const noexcept { return inbox_.empty(); }
  /// True if a message at the head can be taken. Drops aborted ones.
  [[nodiscard]] bool has_arrived();
  /// Precondition of these: not empty.
  [[nodiscard]] Incoming& front() noexcept { return inbox_.front(); }
  Incoming pop_front() { return inbox_.pop_front(); }
  /// The last whole message that waits; null: none.
  [[nodiscard]] const Incoming* last_arrived() { return inbox_.last_arrived(is_content); }
  /// Counts the head as taken by the program; call pop_front() next. Returns the credit that is due
  /// then; its pipe is 0 when none is.
  [[nodiscard]] Descriptor take_front() noexcept { return take(inbox_.front()); }
  /// The same for a message that left the inbox without it, and counts in the window until now.
  [[nodiscard]] Descriptor take(Incoming& message) noexcept {
    message.held.give_back();
    return window_.take(pipe_, message.descriptor.payload_bytes);
  }
  /// Drops the head, whose tensors on a GPU will not arrive. Returns the credit as take_front().
  [[nodiscard]] Descriptor drop_incomplete() {
    ++incomplete_count_;
    const Descriptor credit = take_front();
    (void)pop_front();
    return credit;
  }
  [[nodiscard]] std::uint64_t incomplete_count() const noexcept { return incomplete_count_; }
  /// The credit for taken messages that were not reported yet, if any.
  [[nodiscard]] Descriptor tell() noexcept { return window_.tell(pipe_); }
  [[nodiscard]] std::uint64_t taken_messages() const noexcept { return window_.taken_messages(); }
  /// Drops all messages. Returns their number.
  std::size_t clear();
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return window_.waiting_bytes(); }
  [[nodiscard]] const Window& window() const noexcept { return window_.window(); }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return inbox_.held_bytes(); }

  // Schemas
  /// Reads the announcement, whose body has arrived. An unreadable one ends nothing: each message
  /// of it is refused. `offers`: the GPUs on which its leaves may lie; null: none. Errors:
  /// limit_exceeded, unsupported_device, those of decoding.
  [[nodiscard]] Result<void> read_schema(const Incoming& incoming,
                                         const DeviceOffers* offers = nullptr);
  /// The reason why there is no schema of this number.
  [[nodiscard]] Error why_unknown(std::uint32_t number) const;
  [[nodiscard]] const std::shared_ptr<const Schema>& schema(std::uint32_t number) const noexcept {
    return schemas_.find(number);
  }
  /// The placement of its leaves at the sender; null: in host memory.
  [[nodiscard]] const std::shared_ptr<const Placement>& placement(
      std::uint32_t number) const noexcept {
    return schemas_.placement(number);
  }
  void forget_schemas() noexcept { schemas_.clear(); }

 private:
  [[nodiscard]] Result<void> try_read_schema(const Incoming& incoming, const DeviceOffers* offers);
  // True for messages that count in the window.
  static bool is_content(const Descriptor& descriptor) noexcept {
    return descriptor.kind == MessageKind::data || descriptor.kind == MessageKind::bytes;
  }

  const std::uint32_t pipe_;
  Inbox inbox_;
  ReceiveWindow window_;
  const HeldBytes& budget_;
  SchemaTable schemas_;
  std::optional<std::pair<std::uint32_t, Error>> unread_schema_;  // the last one that was refused
  std::uint64_t last_sequence_ = 0;
  std::uint64_t incomplete_count_ = 0;
};

}  // namespace tendon::v0::detail
