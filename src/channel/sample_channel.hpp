// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/result.hpp>
#include <tendon/tensor/schema.hpp>

#include "channel/direct_show.hpp"
#include "channel/sender.hpp"
#include "runtime/waits_for.hpp"
#include "transport/lent_sample.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// One message for many channels.
struct SharedMessage {
  Descriptor descriptor;  ///< kind, sizes and layout, which are the same on every channel
  std::shared_ptr<const Schema> schema;  ///< of a TensorDict; null: raw bytes
  /// The places of its leaves, for a peer to which that GPU is offered first; null: in host memory.
  std::shared_ptr<const Placement> placement{};
  Bytes body;  ///< payload, values, header, in this order
  /// The slot of the body. Null for at most kMaxInlineBytes: then it travels inline, and its memory
  /// is free when the call returns.
  std::shared_ptr<const PublishedSlot> slot;
  RingShare share = RingShare::whole;
  /// With a device part: the leaves that are not in the payload.
  LeavesOnGpu on_gpu{};
};

/// The result of an attempt to show a sample on a channel.
enum class Shown : std::uint8_t {
  shown,      ///< the peer or the kernel has it
  under_way,  ///< it will be shown, unless it is dropped; the channel is closed meanwhile
  closed,  ///< nothing was done: the window is closed, or there is no room in ring, arena, socket
  beyond_share,  ///< nothing was done: the peer has used its share of the pool of `on_gpu`
  dropped,       ///< nothing was done, but reported once: the sample under way was dropped
};

/// The sending side of one of many channels that show the same samples: at most one message is
/// under way on it. A message whose schema was announced stays under way until it has left,
/// whatever room there is. So no schema is announced before the message of the last one was sent.
///
///   idle -> announcing   a large schema leaves over sockets; its message follows
///        -> announced    the schema has left, and there was no room for the message
///        -> sending      a large message leaves over sockets
///
/// Over sockets a sample with `Keeps::once_begun` may be dropped while it is under way: by
/// StoppedSends, or if nobody has it any more before its first byte leaves. The peer never gets it.
///
/// Owns:    shares of its link and of the schemas; while a sample is under way, its LentSample or a
///          copy of a small body.
/// Threads: the lock of its Fanout is held for every call, but for window() and link().
/// Errors:  the link's; then nothing is under way any more. message_too_large, and
///          unsupported_device for leaves that lay on a GPU: this peer does not take this sample,
///          and the channel stays usable.
/// Blocks:  never.
/// Cost:    that of the link.
class SampleChannel {
 public:
  /// `window` is the receiver's, from its opening of the channel. The Context outlives it. `copied`
  /// counts samples that were sent as copies, beyond the share of the receiver's link.
  SampleChannel(ContextCore& context, std::shared_ptr<Link> link, std::uint32_t pipe, Window window,
                std::shared_ptr<std::atomic<std::uint64_t>> copied = nullptr);
  SampleChannel(const SampleChannel&) = delete;
  SampleChannel& operator=(const SampleChannel&) = delete;
  ~SampleChannel();

  [[nodiscard]] Link& link() const noexcept { return *link_; }
  /// For words of the receiver: credits and acks.
  [[nodiscard]] SendWindow& window() noexcept { return window_; }

  /// Prepares a sample; show_and_ring() must follow. `tag` is that of the descriptor. A schema that
  /// the receiver does not know is announced first, when the window has room for the sample.
  /// `share_bytes`: the part of the publish pool that the receiver's link may have, this sample
  /// included.
  using Keeps = LentSample::Keeps;
  [[nodiscard]] Result<Shown> prepare(const SharedMessage& sample, std::uint32_t tag,
                                      std::uint64_t share_bytes = PublishPool::kWholeShare,
                                      Keeps keeps = Keeps::until_sent);
  /// Continues the sample under way, and checks whether it has left or was dropped.
  [[nodiscard]] Result<Sent> go_on();
  /// True if the sample under way was dropped; reported once.
  [[nodiscard]] bool was_dropped();
  /// Sets Keeps::once_begun for the sample under way from here on.
  void wait_no_more() {
    if (lent_ != nullptr) lent_->wait_no_more();
  }
  /// Stops the sample under way, unless it is too late. Nothing follows on this channel.
  void end() noexcept;

 private:
  enum class Step : std::uint8_t { idle, announcing, announced, sending };
  [[nodiscard]] Result<void> check_size(const Descriptor& descriptor) const;
  [[nodiscard]] Result<void> check_strandings() const;
  /// The placement of a sample's leaves, as this peer knows it.
  [[nodiscard]] Result<std::shared_ptr<const Placement>> peer_placement(
      const SharedMessage& sample);
  [[nodiscard]] Result<Sent> announce(const std::shared_ptr<const Schema>& schema,
                                      const std::shared_ptr<const Placement>& placement);
  [[nodiscard]] bool goes_over_socket() const noexcept { return !link_->traits().slots_go_over; }
  [[nodiscard]] Result<Shown> prepare_with_room(const SharedMessage& sample, Descriptor descriptor,
                                                const std::shared_ptr<const Placement>& placement,
                                                std::uint64_t share_bytes, Keeps keeps);
  void lend(const SharedMessage& sample, Keeps keeps);
  void describe(const Descriptor& descriptor, Bytes body, const PublishedSlot* slot,
                RingShare share);
  void describe(const Descriptor& descriptor, RingShare share);
  /// Keeps the message, which has its number: only its end or a drop keeps it from leaving.
  [[nodiscard]] Shown keep(Step step, const Descriptor& descriptor, const SharedMessage& sample);
  void note_dropped();
  [[nodiscard]] Result<Sent> go_on_announced();
  [[nodiscard]] Result<Sent> go_on_sending();
  [[nodiscard]] Result<Sent> offer();
  [[nodiscard]] Result<Sent> hand_over();
  [[nodiscard]] Error fail(Error why);
  void let_go() noexcept;

  ContextCore& context_;
  const std::shared_ptr<Link> link_;
  const std::uint32_t pipe_;
  const std::shared_ptr<std::atomic<std::uint64_t>> copied_;
  SendWindow window_;
  ChannelSender sender_;
  // The word that was offered to the link, and its parts.
  SendOp op_;
  BodyPart payload_;
  Step step_ = Step::idle;
  std::uint64_t share_bytes_ = PublishPool::kWholeShare;
  bool under_way_ = false;           // the link continues with op_
  bool is_first_of_schema_ = false;  // the message that is under way
  bool dropped_ = false;             // it was dropped, and nobody has asked
  Descriptor descriptor_;            // of lent_
  RingShare share_ = RingShare::whole;
  std::shared_ptr<LentSample> lent_;    // the message; null: the caller has it, or there is none
  PublishPool::LinkNumber reader_ = 0;  // in the publish pool, from its first sample on
  std::optional<Error> failure_;        // why nothing more is sent, though the link lives
  std::optional<WaitsFor> waits_;       // while there is no room
  DirectShow direct_;                   // of the message under way or offered
};

}  // namespace tendon::v0::detail
