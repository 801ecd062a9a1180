// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/result.hpp>
#include <tendon/tensor/schema.hpp>

#include "channel/sender.hpp"
#include "runtime/waits_for.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// One message for many channels.
struct SharedMessage {
  Descriptor descriptor;  ///< kind, sizes and layout: what is the same on every channel
  std::shared_ptr<const Schema> schema;  ///< of a TensorDict; null: raw bytes
  Bytes body;                            ///< payload, values, header, one behind the other
  /// The body lies there. Null where it is at most kMaxInlineBytes: then it travels inline, and its
  /// memory is free when the call returns.
  std::shared_ptr<const PublishedSlot> slot;
  RingShare share = RingShare::whole;
};

/// What came of an attempt to show a sample on a channel.
enum class Shown : std::uint8_t {
  shown,      ///< it is with the peer, or in the hands of the kernel
  under_way,  ///< it will be, and holds its slot until then; the channel is closed meanwhile
  closed,  ///< nothing was done: the window is closed, or there is no room in ring, arena, socket
};

/// The sending side of one of many channels that show the same samples: at most one message is
/// under way on it.
///
/// Owns:    shares of its link and of the schemas; of a slot while a sample is under way.
/// Threads: the lock of its SampleSender is held for every call, but for window() and link().
/// Errors:  the link's; then nothing is under way any more.
/// Blocks:  never.
/// Cost:    that of the link.
class SampleChannel {
 public:
  /// `window`: what the receiver said when it opened the channel. The Context outlives it.
  SampleChannel(ContextCore& context, std::shared_ptr<Link> link, std::uint32_t pipe,
                Window window);
  SampleChannel(const SampleChannel&) = delete;
  SampleChannel& operator=(const SampleChannel&) = delete;
  ~SampleChannel() { end(); }

  [[nodiscard]] Link& link() const noexcept { return *link_; }
  /// For what the receiver says: credits and acks.
  [[nodiscard]] SendWindow& window() noexcept { return window_; }

  /// show_and_ring() must follow what is shown. `tag` is that of the descriptor. A schema that the
  /// receiver does not know is announced first.
  [[nodiscard]] Result<Shown> prepare(const SharedMessage& sample, std::uint32_t tag);
  /// Looks whether what was under way has gone.
  [[nodiscard]] Result<Sent> go_on();
  /// What is under way will not be delivered, unless it is too late. Nothing follows on this
  /// channel.
  void end() noexcept;

 private:
  [[nodiscard]] Result<Sent> announce(const std::shared_ptr<const Schema>& schema);
  [[nodiscard]] Result<Sent> begin();
  [[nodiscard]] Result<Sent> try_begin();
  void let_go() noexcept;

  ContextCore& context_;
  const std::shared_ptr<Link> link_;
  const std::uint32_t pipe_;
  SendWindow window_;
  ChannelSender sender_;
  // The message that was begun, and what it names.
  SendOp op_;
  BodyPart payload_;
  std::shared_ptr<const PublishedSlot> slot_;
  std::shared_ptr<const Schema> announced_;
  bool under_way_ = false;
  std::optional<WaitsFor> waits_;  // while there is no room
};

}  // namespace tendon::v0::detail
