// SPDX-License-Identifier: Apache-2.0
// What travels between a pipe and a link, in both directions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/error.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "memory/loaned_slot.hpp"
#include "memory/publish_pool.hpp"
#include "transport/descriptor.hpp"
#include "transport/device_body.hpp"
#include "transport/held_bytes.hpp"

namespace tendon::v0::detail {

/// A piece of an outgoing payload: contiguous bytes, or a strided tensor to be gathered.
struct BodyPart {
  std::uint64_t offset = 0;  ///< in the payload; parts are ordered by it and do not overlap
  Bytes bytes;               ///< when `strided` is null
  const Tensor* strided = nullptr;
  std::uint64_t size_bytes = 0;
};

/// What came of a try to send.
enum class Sent : std::uint8_t {
  done,   ///< locally complete: its memory may be used again
  later,  ///< there is no room now: try again when something moved
};

/// How much of a ring in shared memory a message may take. Links over sockets have none.
enum class RingShare : std::uint8_t {
  whole,         ///< but for what words of control need
  less_control,  ///< it leaves room for samples of priority `control`, which take the whole
};

class DeviceFill;
class DeviceHold;
class LentSample;

/// An outgoing message, and the answer of its link. The memory it names stays valid until it is
/// done or withdrawn; the link never touches it afterwards. A link over streams keeps for itself
/// how far its frames are.
struct SendOp {
  Descriptor descriptor;  ///< the link fills in only where the body is
  std::span<const BodyPart>
      parts;  ///< the payload; gaps between parts travel as unspecified or zero bytes
  Bytes values;
  Bytes header;
  Bytes device_part;
  /// The slot that the payload lies in already (a loan, whose owner keeps it) or is copied to.
  LoanedSlot* loaned = nullptr;
  std::shared_ptr<LoanedSlot> own_slot;  ///< the link's, when it copies
  /// The whole body lies there too; `parts`, `values` and `header` name it as well. A link that can
  /// let its peer read it takes a hold, any other sends from there. The caller keeps its share
  /// until the op is done.
  const PublishedSlot* published = nullptr;
  /// tcp: who has the body from its first byte on and is asked for it then; `parts`, `values` and
  /// `header` may name nothing before. Null: the body is there.
  LentSample* lent = nullptr;
  /// shm: the leaves on a GPU, which `device_part` is of.
  DeviceFill* device = nullptr;
  /// shm: the peer's hold of the leaves on a GPU, which are there already and have no number.
  DeviceHold* device_hold = nullptr;
  /// How many bytes of such slots the peer may have; beyond that it is sent a copy.
  std::uint64_t share_bytes = PublishPool::kWholeShare;
  RingShare share = RingShare::whole;

  std::uint64_t filled_bytes = 0;  ///< of the body, that lie in the slot

  bool done = false;        ///< locally complete
  bool dropped = false;     ///< tcp: its lender has no body for it, or took it back
  bool over_share = false;  ///< shm: what lies in `published` went, or goes, as a copy
};

/// Names the body of `op`, which lies in one piece: the payload, the values, the header, as its
/// descriptor says. `payload` holds the payload's place for as long as `op` is used.
inline void name_body(SendOp& op, Bytes body, BodyPart& payload) {
  const Descriptor& descriptor = op.descriptor;
  const std::uint64_t payload_bytes = descriptor.payload_bytes;
  payload = {0, body.first(payload_bytes), nullptr, payload_bytes};
  op.parts = {&payload, 1};
  op.values = body.subspan(payload_bytes, descriptor.values_bytes);
  op.header = body.subspan(payload_bytes + descriptor.values_bytes, descriptor.header_bytes);
}

/// The parts of the payload that end behind byte `offset`, in order.
[[nodiscard]] std::span<const BodyPart> parts_from(const SendOp& op, std::uint64_t offset);

/// Copies bytes [offset, offset + destination.size()) of the body of `op` into `destination`; gaps
/// between parts become zero. Without parts, the payload is what lies in the op's slot. All pieces
/// of the body come to lie in memory of `whole_bytes`, of which `destination` is a part: the larger
/// it is, the less of it stays in a cache.
void copy_body(const SendOp& op, std::uint64_t offset, MutableBytes destination,
               std::uint64_t whole_bytes);
/// The same where `destination` is all there is: a buffer that the next piece uses again.
inline void copy_body(const SendOp& op, std::uint64_t offset, MutableBytes destination) {
  copy_body(op, offset, destination, destination.size());
}
/// Bytes [offset, offset + size_bytes) of the body where they lie; empty if that is not one piece.
[[nodiscard]] Bytes contiguous_body(const SendOp& op, std::uint64_t offset,
                                    std::uint64_t size_bytes);

/// Where an incoming body is kept, and what owns it.
struct IncomingBody {
  enum class Place : std::uint8_t {
    nowhere,       ///< no body
    private_copy,  ///< small: copied out of the ring or the socket's buffer
    peer_slot,     ///< shm: a slot of the sender, given back when `owner` goes
    pool_slot,     ///< tcp: a slot of this Context's pool, or private memory when the pool is full
    claimed,       ///< tcp: written straight to where the receiver wanted it
    failed,        ///< there was no memory for it: `owner` holds the Error
  };
  Place place = Place::nowhere;
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
  std::uint64_t slot_bytes = 0;        ///< peer_slot: the size class
  Access access = Access::read_write;  ///< read_only: others may read the same bytes

  /// A body that cannot be read here; the link goes on.
  [[nodiscard]] static IncomingBody of_failure(Error error);
  /// Why it cannot be read; null when it can.
  [[nodiscard]] const Error* failure() const noexcept {
    return place == Place::failed ? static_cast<const Error*>(owner.get()) : nullptr;
  }
};

/// A bulk transfer into this process that is not complete yet.
struct Transfer {
  Descriptor descriptor;
  IncomingBody body;
  std::vector<MutableBytes> claimed;  ///< place == claimed: the payload's destination, in order
  HeldBytes::Share held;
  std::uint64_t received_bytes = 0;
  bool complete = false;
  bool aborted = false;
};

/// A message as a link hands it to its pipe.
struct Incoming {
  Descriptor descriptor;
  IncomingBody body;
  std::shared_ptr<Transfer> transfer;    ///< tcp: while the body is arriving it is there
  HeldBytes::Share held{};               ///< given back when the message is taken or dropped
  std::shared_ptr<DeviceBody> device{};  ///< shm: the tensors that lie on a GPU

  /// Is all of it here? Its body is in `body` from then on.
  [[nodiscard]] bool arrived() {
    if (device != nullptr) return device->arrived();
    if (transfer == nullptr) return true;
    if (!transfer->complete) return false;
    body = std::move(transfer->body);
    held = std::move(transfer->held);
    transfer = nullptr;
    return true;
  }
  /// Where its body lies, or is to lie.
  [[nodiscard]] IncomingBody::Place place() const noexcept {
    return transfer != nullptr ? transfer->body.place : body.place;
  }
  /// What it keeps from others while it waits: memory here, or a slot of the peer.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept {
    if (place() == IncomingBody::Place::peer_slot) return descriptor.body_bytes();
    return (transfer != nullptr ? transfer->held : held).size_bytes();
  }
  /// It will not come: drop it.
  [[nodiscard]] bool aborted() const noexcept {
    if (device != nullptr) return device->is_incomplete();
    return transfer != nullptr && transfer->aborted;
  }
};

}  // namespace tendon::v0::detail
