// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "memory/segment.hpp"
#include "transport/message.hpp"

namespace tendon::v0::detail {

/// One end of a pipe, as a link sees it. Every call comes under the link's receive lock.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// The next message of this pipe, in order.
  virtual void on_message(Incoming&& incoming) = 0;
  /// tcp: may the payload of this message be written straight to its destination? Fills
  /// `destination` with as many bytes as the payload has, in order, and returns true; or leaves it
  /// alone.
  virtual bool claim_destination(const Descriptor& descriptor,
                                 std::vector<MutableBytes>& destination) = 0;
  /// tcp: may this message come at all? Asked before memory for it is found. False: the sink has
  /// failed with the reason; what still comes of the message is dropped.
  virtual bool admits(const Descriptor& descriptor) = 0;
  /// The transfer handed over with on_message() is complete or aborted now.
  virtual void on_transfer_ended(const Transfer& transfer) = 0;
  /// shm: memory on a GPU was mapped, or refused, in which a message lies that was handed over
  /// before.
  virtual void on_device_tried() {}
  /// shm: the peer lets this side read a segment that it alone may write; `id` is its name for it.
  /// What a sink does not expect, it refuses: that ends the link.
  virtual Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment);
  /// shm: the same, but this process has no memory to map it.
  virtual void on_segment_failed(std::uint32_t, const Error&) {}
  /// Nothing more will come. Messages handed over before stay valid.
  virtual void on_link_failed(const Error& error) = 0;
  /// The link had failed without a proof that the peer is dead: here it is.
  virtual void on_death_proved() {}
};

}  // namespace tendon::v0::detail
