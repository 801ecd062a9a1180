// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "channel/schema_table.hpp"
#include "channel/send_window.hpp"

namespace tendon::v0::detail {

/// The sending side of a channel: the numbers of messages, their room in the window, and the
/// schemas that the receiver knows.
///
/// A receiver accepts a window of messages and one schema for each, and little more: it ends a
/// channel whose sender announces without end. So nothing is announced for a message that has no
/// room itself, and few schemas are *stranded*: announced for a message that was withdrawn. A pipe
/// strands one at a time, a topic up to kMostStranded.
///
/// Owns:    a share of each announced schema; a reference to its window.
/// Threads: the sender's lock is held for every call.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few instructions; schemas as SchemaTable.
class ChannelSender {
 public:
  /// `cap_bytes` is that of the receiver.
  ChannelSender(std::uint32_t pipe, SendWindow& window, std::uint64_t cap_bytes)
      : pipe_(pipe), window_(window), schemas_(cap_bytes) {}

  /// The last number that was used; 0 at the beginning.
  [[nodiscard]] std::uint64_t last_sequence() const noexcept { return last_sequence_; }
  /// Uses a number for a word outside the window, or for a withdrawn message that keeps it.
  std::uint64_t use_sequence() noexcept { return ++last_sequence_; }

  /// True if the window has room for this message.
  [[nodiscard]] bool has_room(const Descriptor& descriptor) const noexcept {
    return window_.open_for(descriptor.payload_bytes);
  }
  /// Assigns the next number to a message that has none. False: the window has no room for it. The
  /// number counts as used when the message is sent().
  [[nodiscard]] bool begin(Descriptor& descriptor) const noexcept {
    if (descriptor.sequence != 0) return true;
    if (!has_room(descriptor)) return false;
    descriptor.sequence = last_sequence_ + 1;
    return true;
  }
  void sent(const Descriptor& descriptor) noexcept {
    ++last_sequence_;
    window_.count(descriptor.payload_bytes);
    if (descriptor.schema == stranded_) stranded_ = 0;
  }

  /// The number of a schema that the receiver knows; 0 when it must be announced (again).
  [[nodiscard]] std::uint32_t number_of(const std::shared_ptr<const Schema>& schema,
                                        const Placement* placement = nullptr) const {
    return schemas_.number_of(schema, placement);
  }
  /// The announcement of a schema. It has a number in the sequence as well: over sockets a large
  /// one travels as a transfer, which is identified by that.
  [[nodiscard]] Descriptor announcement(const Schema& schema,
                                        const Placement* placement = nullptr) const {
    Descriptor descriptor;
    descriptor.kind = MessageKind::schema;
    descriptor.pipe = pipe_;
    descriptor.schema = schemas_.next_number();
    descriptor.payload_bytes = schema.encoding().size();
    if (placement != nullptr)
      descriptor.values_bytes = static_cast<std::uint32_t>(placement->leaves.size());
    descriptor.sequence = last_sequence_ + 1;
    return descriptor;
  }
  void announced(std::uint32_t number, std::shared_ptr<const Schema> schema,
                 std::shared_ptr<const Placement> placement = nullptr) {
    ++last_sequence_;
    // The only limit is the table's own.
    (void)schemas_.add(number, std::move(schema), std::move(placement));
  }
  /// Notes that the message of an announced schema was withdrawn.
  void strand(std::uint32_t number) noexcept {
    stranded_count_ = strandings() + 1;
    stranded_ = number;
    stranded_behind_ = window_.shown_messages();
  }
  /// True if the receiver may not have read a stranded schema yet. It has read everything before a
  /// message that it took.
  [[nodiscard]] bool has_stranded() const noexcept {
    return stranded_ != 0 && !window_.has_taken_messages(stranded_behind_ + 1);
  }
  /// The number of schemas that the receiver may not have read yet.
  [[nodiscard]] std::uint32_t strandings() const noexcept {
    return window_.has_taken_messages(stranded_behind_ + 1) ? 0 : stranded_count_;
  }
  /// The receiver has room for 16 beside one for each message.
  static constexpr std::uint32_t kMostStranded = 8;

 private:
  const std::uint32_t pipe_;
  SendWindow& window_;
  std::uint64_t last_sequence_ = 0;
  SchemaTable schemas_;
  std::uint32_t stranded_ = 0;         // a schema's number; 0: none
  std::uint64_t stranded_behind_ = 0;  // number of messages shown before it
  std::uint32_t stranded_count_ = 0;   // in a row
};

}  // namespace tendon::v0::detail
