// SPDX-License-Identifier: Apache-2.0
// A message of a pipe before it is sent and after it is taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/pipe/message.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "channel/device_copy_kind.hpp"
#include "channel/placement.hpp"
#include "transport/message.hpp"

namespace tendon::v0::detail {

/// A message on its way out, with everything that the link reads until it has left.
struct Outgoing {
  SendOp op;
  std::vector<BodyPart> parts;
  std::vector<Tensor> strided;  // referenced by `parts`
  std::string values;
  std::shared_ptr<const Schema> schema;
  std::shared_ptr<const Placement> placement;  // null: its leaves lie in host memory
  std::shared_ptr<DeviceFill> fill;            // the leaves that stay on a GPU
  std::optional<SendOp> announcement;          // of the schema, if it must be sent first
  BodyPart announcement_part;
  bool prepared = false;
  bool is_loan = false;
  bool is_first_of_schema = false;  // its announcement was sent before it
};

struct Taken;

/// A message that was taken and put back: its completion was dropped, its deadline passed, or it
/// could not be copied to the GPU where it is wanted.
struct PutBack {
  Message message;
  std::uint64_t number = 0;                      // of the stream, for its order
  std::uint64_t copied_bytes = 0;                // by the recv_into whose deadline passed
  std::shared_ptr<const Placement> placement{};  // at its sender
  std::unique_ptr<Taken> untaken{};              // set: as it was at the head, on a GPU of the peer
};

/// The message that one recv takes from the head of a pipe.
struct Taken {
  std::unique_ptr<PutBack> put_back;  // set: this one
  Incoming incoming;
  std::uint64_t number = 0;  // among the messages taken from this stream
  std::shared_ptr<const Schema> schema;
  std::optional<Error> no_schema;              // the reason for a missing schema
  std::shared_ptr<const Placement> placement;  // at its sender; null: all in host memory
  std::shared_ptr<const Value> values;         // once a destination was filled
  /// The memory of a call that has timed out since, if its payload was written there.
  std::optional<TensorDict> written_to;
  bool lent = false;
  std::chrono::milliseconds patience{0};  // of the next try to copy it from a GPU, at least

  /// True if its tensors lie on a GPU, in memory of the peer.
  [[nodiscard]] bool is_direct() const noexcept { return incoming.device != nullptr; }
};

}  // namespace tendon::v0::detail
