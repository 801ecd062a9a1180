// SPDX-License-Identifier: Apache-2.0
// What travels between a pipe and a link, in both directions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "memory/slot_lease.hpp"
#include "transport/descriptor.hpp"

namespace tendon::inline v0::detail {

/// A piece of an outgoing payload: contiguous bytes, or a strided tensor to be gathered.
struct BodyPart {
  std::uint64_t offset = 0;  ///< in the payload; parts are ordered by it and do not overlap
  Bytes bytes;               ///< when `strided` is null
  const Tensor* strided = nullptr;
  std::uint64_t size_bytes = 0;
};

/// An outgoing message and how far it has come. The memory it names stays valid until it is done or
/// withdrawn; the link never touches it afterwards.
struct SendOp {
  Descriptor descriptor;  ///< the link fills in only where the body is
  std::span<const BodyPart>
      parts;  ///< the payload; gaps between parts travel as unspecified or zero bytes
  Bytes values;
  Bytes header;
  /// The slot that the payload lies in already (a loan, whose owner keeps it) or is copied to.
  SlotLease* lease = nullptr;
  std::shared_ptr<SlotLease> own_lease;  ///< the link's, when it copies

  std::uint64_t done_bytes =
      0;  ///< shm: bytes copied into the slot; tcp: bytes handed to the socket
  std::uint64_t in_flight_bytes = 0;  ///< tcp: bytes of frames begun
  bool staged = false;                ///< tcp: descriptor queued; shm: body complete
  bool done = false;                  ///< locally complete
};

/// The parts of the payload that end behind byte `offset`, in order.
[[nodiscard]] std::span<const BodyPart> parts_from(const SendOp& op, std::uint64_t offset);

/// Copies bytes [offset, offset + destination.size()) of the body of `op` into `destination`; gaps
/// between parts become zero. Without parts, the payload is what lies in the op's slot.
void copy_body(const SendOp& op, std::uint64_t offset, MutableBytes destination);

/// Where an incoming body is kept, and by whom.
struct IncomingBody {
  enum class Place : std::uint8_t {
    nowhere,       ///< no body
    private_copy,  ///< small: copied out of the ring or the socket's buffer
    peer_slot,     ///< shm: a slot of the sender, given back when `owner` goes
    pool_slot,     ///< tcp: a slot of this Context's pool, or private memory when the pool is full
    claimed,       ///< tcp: written straight to where the receiver wanted it
  };
  Place place = Place::nowhere;
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
  std::uint64_t slot_bytes = 0;  ///< peer_slot: the size class
};

/// A bulk transfer into this process that is not complete yet.
struct Transfer {
  Descriptor descriptor;
  IncomingBody body;
  std::vector<MutableBytes> claimed;  ///< place == claimed: the payload's destination, in order
  std::uint64_t received_bytes = 0;
  bool complete = false;
  bool aborted = false;
};

/// A message as a link hands it to its pipe.
struct Incoming {
  Descriptor descriptor;
  IncomingBody body;
  std::shared_ptr<Transfer> transfer;  ///< tcp: set while the body is still arriving
};

}  // namespace tendon::inline v0::detail
