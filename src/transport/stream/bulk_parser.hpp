// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tendon/core/result.hpp>

#include "transport/stream/inbound.hpp"

namespace tendon::v0::detail {

/// Cuts the byte stream of one bulk lane into frames and says where their bytes belong, so that a
/// socket is read straight into them.
/// It also reads a little beyond the frame: the tail frame and the next header usually arrive with
/// the same system call. Uses no sockets; the fuzzer runs the same code.
class BulkParser {
 public:
  explicit BulkParser(Inbound& inbound) : inbound_(inbound) {}

  /// Returns where the next bytes of the stream belong; nothing while parked(). Valid until the
  /// next call on this parser or on the Inbound.
  [[nodiscard]] ReadTargets targets();
  /// Reports that `size_bytes` were written to the targets. Errors: protocol_violation.
  [[nodiscard]] Result<void> on_received(std::size_t size_bytes);
  /// True if a frame arrived before its descriptor: the lane is not read until resume() finds it.
  [[nodiscard]] bool parked() const noexcept { return parked_; }
  /// Looks for the descriptor again. Errors: protocol_violation.
  [[nodiscard]] Result<void> resume();
  /// True inside a frame or a header, where the stream may not end.
  [[nodiscard]] bool unfinished() const noexcept { return open_ != nullptr || begin_ != end_; }

 private:
  [[nodiscard]] Result<void> take_ahead();
  void advance(std::uint64_t size_bytes);

  Inbound& inbound_;
  FrameHeader header_;
  OpenTransfer* open_ = nullptr;      // the transfer whose frame is being read
  std::uint64_t frame_received_ = 0;  // bytes of that frame
  std::uint64_t placed_bytes_ = 0;    // the part of targets() in the frame's own place
  bool parked_ = false;
  // Holds a tail frame, the header behind it, and some more.
  std::array<std::byte, 256> ahead_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace tendon::v0::detail
