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

/// A message on its way out, with everything the link reads until it is gone.
struct Outgoing {
  SendOp op;
  std::vector<BodyPart> parts;
  std::vector<Tensor> strided;  // what `parts` points to
  std::string values;
  std::shared_ptr<const Schema> schema;
  std::shared_ptr<const Placement> placement;  // null: its leaves lie in host memory
  std::shared_ptr<DeviceFill> fill;            // the leaves that stay on a GPU
  std::optional<SendOp> announcement;          // of the schema, when it must go first
  BodyPart announcement_part;
  bool prepared = false;
  bool is_loan = false;
  bool is_first_of_schema = false;  // its announcement went ahead of it
};

struct Taken;

/// A message that was taken and came back: its completion was dropped, its deadline passed, or it
/// could not be copied to the GPU where it is wanted.
struct PutBack {
  Message message;
  std::uint64_t number = 0;                      // of the stream, for its order
  std::uint64_t copied_bytes = 0;                // by the recv_into whose deadline passed
  std::shared_ptr<const Placement> placement{};  // at its sender
  std::unique_ptr<Taken> untaken{};  // set: it is as it was at the head, on a GPU of the peer
};

/// What one recv takes from the head of a pipe.
struct Taken {
  std::unique_ptr<PutBack> put_back;  // set: this one
  Incoming incoming;
  std::uint64_t number = 0;  // among the messages taken from this stream
  std::shared_ptr<const Schema> schema;
  std::optional<Error> no_schema;              // why there is none
  std::shared_ptr<const Placement> placement;  // at its sender; null: all in host memory
  std::shared_ptr<const Value> values;         // once a destination was filled
  /// Where its payload was written for a call that has given up since; the memory of that call.
  std::optional<TensorDict> written_to;
  bool lent = false;
  std::chrono::milliseconds patience{0};  // of the next try to copy it from a GPU, at least

  /// Its tensors lie on a GPU, in memory of the peer.
  [[nodiscard]] bool is_direct() const noexcept { return incoming.device != nullptr; }
};

}  // namespace tendon::v0::detail
