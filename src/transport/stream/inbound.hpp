// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/result.hpp>
#include <vector>

#include "transport/held_bytes.hpp"
#include "transport/link.hpp"
#include "transport/private_body.hpp"
#include "transport/stream/control_parser.hpp"
#include "transport/stream/frame.hpp"

namespace tendon::v0::detail {

/// The calls of the receiving state machine to the link around it.
class InboundHost {
 public:
  virtual ~InboundHost() = default;
  /// Hands a message to its pipe, or drops and counts it.
  virtual void deliver(Incoming incoming) = 0;
  [[nodiscard]] virtual MessageSink* receiver_of(std::uint32_t pipe) = 0;
  /// Returns memory for a body, not touched yet: a slot of the pool, or private memory.
  [[nodiscard]] virtual Result<IncomingBody> allocate(std::uint64_t size_bytes) = 0;
  /// Sends a small control message back.
  virtual void answer(const Descriptor& descriptor) = 0;
  /// Notes how many bytes of bodies in frames the peer's program has taken in total.
  [[nodiscard]] virtual Result<void> on_link_credit(std::uint64_t taken_bytes) = 0;
  /// Notes that small messages were taken: reading continues if it had paused for them.
  virtual void on_room() = 0;
  virtual void on_open(const Descriptor& descriptor, Bytes ticket) = 0;
  /// Handles a word about the link itself: `goodbye`, `retire`, `clock`, `device`, and `secure`
  /// with its body. An error ends the link.
  [[nodiscard]] virtual Result<void> on_word(const Descriptor& descriptor, Bytes body) = 0;
};

/// A body that arrives in frames. Invariant: received <= begun <= expected, so that a lane inside a
/// frame keeps the transfer open.
struct OpenTransfer {
  Descriptor descriptor;
  std::shared_ptr<Transfer> transfer;  ///< null: its bytes are read and dropped
  bool claimed = false;                ///< the payload is read into memory that its pipe claimed
  std::vector<std::uint64_t> claimed_ends;   ///< where each claimed piece ends in the payload
  std::vector<std::uint64_t> frames_begun;   ///< a bit for each frame
  std::vector<MutableBytes> claimed_memory;  ///< capacity kept from one transfer to the next
  std::uint64_t begun_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t expected_bytes = 0;  ///< the whole body, or what the peer sends of an aborted one
  bool aborted = false;
};

/// Pieces of memory for one read.
struct ReadTargets {
  static constexpr std::size_t kMaxPieces = 64;
  std::array<iovec, kMaxPieces> pieces;
  std::size_t count = 0;

  [[nodiscard]] std::span<const iovec> all() const { return {pieces.data(), count}; }
  [[nodiscard]] bool full() const { return count == kMaxPieces; }
  void add(std::byte* data, std::size_t size_bytes) { pieces[count++] = {data, size_bytes}; }
  /// Drops what is beyond `most_bytes`. Returns how many bytes remain.
  std::size_t cut_to(std::uint64_t most_bytes) {
    std::size_t size_bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      pieces[i].iov_len = std::min<std::uint64_t>(pieces[i].iov_len, most_bytes - size_bytes);
      size_bytes += pieces[i].iov_len;
    }
    return size_bytes;
  }
};

/// The receiving half of the tcp protocol, which interprets descriptors and frames. Uses no sockets
/// and no clock; the product, the tests and the fuzzer run the same code.
class Inbound {
 public:
  /// `cap_bytes`: the receiver's link_cap_bytes, which bounds what messages hold here.
  Inbound(InboundHost& host, std::uint64_t cap_bytes);

  /// True if the next message may be taken. False while too much is open, or too many small
  /// messages wait for the program: the control lane then waits.
  [[nodiscard]] bool may_take() const noexcept {
    return open_.size() < kMaxOpenTransfers && small_.has_room(private_cost_bytes(kMaxInlineBytes));
  }
  /// Acts on one message of the control lane. Errors: protocol_violation, resource_exhausted.
  [[nodiscard]] Result<void> on_message(const ControlParser::Message& message);

  /// Returns the transfer that a frame belongs to, and marks the frame as begun; null if its
  /// descriptor has not arrived.
  [[nodiscard]] Result<OpenTransfer*> begin_frame(const FrameHeader& header);
  /// Adds the memory of body bytes [offset, offset + size) to `targets`, as far as it has room.
  /// Returns how many bytes were added.
  std::uint64_t place(OpenTransfer& open, std::uint64_t offset, std::uint64_t size_bytes,
                      ReadTargets& targets);
  /// Notes that `size_bytes` of a frame were written to their place. `open` is invalid afterwards
  /// if that ended the transfer.
  void on_received(OpenTransfer& open, std::uint64_t size_bytes);

  /// Stops all writes to memory that this pipe claimed.
  void drop_claims(std::uint32_t pipe) noexcept;
  /// Aborts every open transfer at the end of the link.
  void abort_all();
  [[nodiscard]] std::size_t open_count() const noexcept { return open_.size(); }
  /// The bodies that wait here for the program: those beside their descriptors, and those in
  /// frames.
  [[nodiscard]] const HeldBytes& small() const noexcept { return small_; }
  [[nodiscard]] const HeldBytes& large() const noexcept { return large_; }
  [[nodiscard]] bool goodbye() const noexcept { return goodbye_; }

 private:
  struct PendingAck {
    std::uint32_t pipe;
    std::uint64_t sequence;
  };
  [[nodiscard]] Result<void> open(const Descriptor& descriptor);
  void tell_taken();
  void choose_memory(OpenTransfer& open, MessageSink& sink);
  [[nodiscard]] bool claim(OpenTransfer& open, MessageSink& sink);
  [[nodiscard]] Result<void> abort(const Descriptor& descriptor);
  void ping(const Descriptor& descriptor);
  void acknowledge(std::uint32_t pipe, std::uint64_t sequence);
  [[nodiscard]] bool arrived(std::uint32_t pipe, std::uint64_t sequence) const;
  [[nodiscard]] OpenTransfer* find(std::uint32_t pipe, std::uint64_t sequence) noexcept;
  void end(OpenTransfer& open);
  void tell_ended(OpenTransfer& open);
  void close(OpenTransfer& open);

  InboundHost& host_;
  const std::uint64_t cap_bytes_;
  HeldBytes small_;
  HeldBytes large_;
  std::uint64_t told_bytes_ = 0;  // the part of large_ that the peer knows to be taken
  std::vector<std::unique_ptr<OpenTransfer>> open_;
  std::vector<std::unique_ptr<OpenTransfer>> unused_;
  std::vector<PendingAck> pending_acks_;
  std::unique_ptr<std::byte[]> scrap_;  // for bytes that nobody wants
  bool goodbye_ = false;
};

}  // namespace tendon::v0::detail
