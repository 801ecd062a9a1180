// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tendon/core/result.hpp>

#include "transport/stream/inbound.hpp"

namespace tendon::v0::detail {

/// Cuts one bulk lane's byte stream into frames and says where their bytes belong, so that a socket
/// is read straight into them. Behind the rest of a frame it reads a little ahead: the tail frame
/// and the next header usually come with the same system call. No sockets; the fuzzer runs the same
/// code.
class BulkParser {
 public:
  explicit BulkParser(Inbound& inbound) : inbound_(inbound) {}

  /// Where the next bytes of the stream go; nothing while parked(). Valid until anything else is
  /// called, on this parser or on the Inbound.
  [[nodiscard]] ReadTargets targets();
  /// That many bytes were written there. Errors: protocol_violation.
  [[nodiscard]] Result<void> on_received(std::size_t size_bytes);
  /// A frame came before its descriptor: the lane is not read until resume() finds it.
  [[nodiscard]] bool parked() const noexcept { return parked_; }
  /// Looks again. Errors: protocol_violation.
  [[nodiscard]] Result<void> resume();
  /// Inside a frame or a header: the stream may not end here.
  [[nodiscard]] bool unfinished() const noexcept { return open_ != nullptr || begin_ != end_; }

 private:
  [[nodiscard]] Result<void> take_ahead();
  void advance(std::uint64_t size_bytes);

  Inbound& inbound_;
  FrameHeader header_;
  OpenTransfer* open_ = nullptr;      // inside a frame of it
  std::uint64_t frame_received_ = 0;  // of the frame's bytes
  std::uint64_t placed_bytes_ = 0;    // of targets(), in the frame's own place
  bool parked_ = false;
  // A tail frame, the header behind it, and some more.
  std::array<std::byte, 256> ahead_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace tendon::v0::detail
