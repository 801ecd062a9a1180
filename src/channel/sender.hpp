// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "channel/schema_table.hpp"
#include "channel/send_window.hpp"

namespace tendon::v0::detail {

/// The sending side of a channel: which number a message gets, whether the window has room for it,
/// which schemas the receiver knows.
///
/// A receiver takes in a window of messages and one schema for each, and little more: it ends a
/// channel whose sender announces without end. So nothing is announced for a message that has no
/// room itself, and few schemas are *stranded*: announced for a message that was withdrawn. A pipe
/// strands one at a time, a topic up to kMostStranded.
///
/// Owns:    a share of each schema that was announced; a reference to its window.
/// Threads: the sender's lock is held for every call.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few instructions; schemas as SchemaTable.
class ChannelSender {
 public:
  /// `cap_bytes`: of the receiver.
  ChannelSender(std::uint32_t pipe, SendWindow& window, std::uint64_t cap_bytes)
      : pipe_(pipe), window_(window), schemas_(cap_bytes) {}

  /// The last number that was used; 0 at the beginning.
  [[nodiscard]] std::uint64_t last_sequence() const noexcept { return last_sequence_; }
  /// A number for what is outside the window, or was withdrawn and keeps it.
  std::uint64_t use_sequence() noexcept { return ++last_sequence_; }

  /// Does the window have room for this message?
  [[nodiscard]] bool has_room(const Descriptor& descriptor) const noexcept {
    return window_.open_for(descriptor.payload_bytes);
  }
  /// Gives a message the next number, unless it has one. False: the window has no room for it. The
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
  /// What announces it. It has a number in the sequence as well: over sockets a large one travels
  /// as a transfer, which is known by that.
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
    // There is no limit but the table's own.
    (void)schemas_.add(number, std::move(schema), std::move(placement));
  }
  /// The message that this schema was announced for was withdrawn.
  void strand(std::uint32_t number) noexcept {
    stranded_count_ = strandings() + 1;
    stranded_ = number;
    stranded_behind_ = window_.shown_messages();
  }
  /// Is there one that the receiver may not have read yet? It has read what lies before a message
  /// that it took.
  [[nodiscard]] bool has_stranded() const noexcept {
    return stranded_ != 0 && !window_.has_taken_messages(stranded_behind_ + 1);
  }
  /// Those that the receiver may not have read yet.
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
  std::uint64_t stranded_behind_ = 0;  // messages that were shown before it
  std::uint32_t stranded_count_ = 0;   // in a row
};

}  // namespace tendon::v0::detail
