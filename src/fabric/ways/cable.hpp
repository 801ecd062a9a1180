// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>

#include "fabric/ways/cable_frame.hpp"
#include "fabric/ways/cable_seal.hpp"

namespace tendon::v0::detail {

/// One end of a cable: ordered bytes both ways in frames that may get lost, and that strangers may
/// write among. It does no I/O and reads no clock.
///
///   open         -- end()          --> ended_here   the near side has no further bytes
///   open         -- hear(end)      --> ended_there  the far side has none
///   ended_here   -- hear(end)      --> over
///   ended_there  -- end()          --> over
///   all of these -- cut()          --> over
///   ended_there  -- hear(cut)      --> over
///   the others   -- hear(cut)      --> broken       the far side is gone
///                -- hear(a gap)    --> broken       a frame was lost
///                -- hear(too much) --> broken       more bytes than were granted
///
/// Owns:    the seal; the frame that is being filled.
/// Threads: one at a time.
/// Errors:  those of memory and of libcrypto: the cable is of no use then.
/// Blocks:  never.
/// Cost:    a block of memory for each frame of data, and one pass over it.
class Cable {
 public:
  enum class State : std::uint8_t { open, ended_here, ended_there, over, broken };

  /// `first_limit`: of bytes that may come before a frame has said more. Both ends know it.
  Cable(const Nonce128& connection, CableEnd end, CableSeal seal, std::uint64_t first_limit);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool is_done() const noexcept {
    return state_ == State::over || state_ == State::broken;
  }
  /// What broke it.
  [[nodiscard]] const std::string& why_broken() const noexcept { return why_broken_; }

  // What leaves. Each frame is to be put, in this order.
  /// The asker speaks first: before it has said anything it may not be listening.
  [[nodiscard]] bool may_speak() const noexcept {
    return end_ == CableEnd::asker || expected_sequence_ != 0;
  }
  /// Bytes that data() may take now.
  [[nodiscard]] std::size_t may_send() const noexcept;
  /// Where they go, at most so many.
  [[nodiscard]] Result<MutableBytes> room();
  /// A frame of the first `size_bytes` of room().
  [[nodiscard]] Result<Storage> data(std::size_t size_bytes);
  [[nodiscard]] Result<Storage> word() { return bare(CableFrameKind::word); }
  [[nodiscard]] Result<Storage> end();
  [[nodiscard]] Result<Storage> cut();

  // What comes
  enum class Verdict : std::uint8_t {
    taken,     ///< its payload is the next part of the stream
    dropped,   ///< a stranger's, or one that came before
    breaks_it  ///< see why_broken()
  };
  [[nodiscard]] Verdict hear(const CableFrame& frame);
  /// The near side has taken so many of the bytes that came.
  void note_taken(std::uint64_t size_bytes) noexcept { taken_bytes_ += size_bytes; }
  /// The far side may have `size_bytes` on their way, or untaken. What was granted stays so.
  void grant(std::uint64_t size_bytes) noexcept;
  /// Bytes that the far side may have on their way, or that wait here.
  [[nodiscard]] std::uint64_t granted() const noexcept { return limit_ - taken_bytes_; }
  /// The far side should hear of its new limit, although there is nothing else to say.
  [[nodiscard]] bool owes_word() const noexcept;

 private:
  static constexpr std::size_t kHeaderBytes = sizeof(CableFrameHeader);
  static constexpr std::uint64_t kMostUntoldBytes = 2 * kMaxCablePayloadBytes;

  [[nodiscard]] Result<Storage> bare(CableFrameKind kind);
  [[nodiscard]] Result<Storage> sealed(const Storage& frame, CableFrameKind kind,
                                       std::size_t payload_bytes);
  Verdict breaks(std::string why);

  const Nonce128 connection_;
  const CableEnd end_;
  CableSeal seal_;
  State state_ = State::open;
  std::string why_broken_;
  Storage draft_;
  // What leaves
  std::uint64_t next_sequence_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t may_send_until_;
  // What comes
  std::uint64_t expected_sequence_ = 0;
  std::uint64_t heard_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t limit_;
  std::uint64_t told_limit_;
};

}  // namespace tendon::v0::detail
