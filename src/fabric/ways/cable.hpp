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

/// One end of a cable: ordered bytes in both directions, in frames that may get lost and among
/// which strangers may write. It does no I/O and reads no clock.
///
///   open         -- end()          --> ended_here   the near side has no further bytes
///   open         -- hear(end)      --> ended_there  the far side has none
///   ended_here   -- hear(end)      --> over
///   ended_there  -- end()          --> over
///   all of these -- cut()          --> over
///   ended_there  -- hear(cut)      --> over
///   the others   -- hear(cut)      --> broken       the far side has left
///                -- hear(a gap)    --> broken       a frame was lost
///                -- hear(too much) --> broken       more bytes than were granted
///
/// Owns:    the seal; the frame that is being filled.
/// Threads: one at a time.
/// Errors:  those of memory and of libcrypto, after which the cable is useless.
/// Blocks:  never.
/// Cost:    a block of memory for each frame of data, and one pass over it.
class Cable {
 public:
  enum class State : std::uint8_t { open, ended_here, ended_there, over, broken };

  /// `first_limit`: the bytes that may arrive before any frame grants more. Both ends know it.
  Cable(const Nonce128& connection, CableEnd end, CableSeal seal, std::uint64_t first_limit);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool is_done() const noexcept {
    return state_ == State::over || state_ == State::broken;
  }
  /// The reason of State::broken.
  [[nodiscard]] const std::string& why_broken() const noexcept { return why_broken_; }

  // Sending: the caller must put each frame that these calls return, in this order.
  /// The asker speaks first: the answerer may not send before it has heard a frame, as the asker
  /// may not be listening yet.
  [[nodiscard]] bool may_speak() const noexcept {
    return end_ == CableEnd::asker || expected_sequence_ != 0;
  }
  /// The number of bytes that data() may take now.
  [[nodiscard]] std::size_t may_send() const noexcept;
  /// Returns the memory for the payload of the next frame, may_send() bytes long.
  [[nodiscard]] Result<MutableBytes> room();
  /// Makes a frame of the first `size_bytes` of room().
  [[nodiscard]] Result<Storage> data(std::size_t size_bytes);
  [[nodiscard]] Result<Storage> word() { return bare(CableFrameKind::word); }
  [[nodiscard]] Result<Storage> end();
  [[nodiscard]] Result<Storage> cut();

  // Receiving
  enum class Verdict : std::uint8_t {
    taken,     ///< its payload is the next part of the stream
    dropped,   ///< of a stranger, or a repeated one
    breaks_it  ///< see why_broken()
  };
  [[nodiscard]] Verdict hear(const CableFrame& frame);
  /// Notes that the near side has taken `size_bytes` of the bytes that arrived.
  void note_taken(std::uint64_t size_bytes) noexcept { taken_bytes_ += size_bytes; }
  /// Lets the far side have `size_bytes` on their way, or untaken. An earlier, larger grant stays.
  void grant(std::uint64_t size_bytes) noexcept;
  /// The bytes that the far side may have on their way, or that wait here.
  [[nodiscard]] std::uint64_t granted() const noexcept { return limit_ - taken_bytes_; }
  /// True if the far side must hear its new limit, although there is nothing else to say.
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
  // Sending
  std::uint64_t next_sequence_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t may_send_until_;
  // Receiving
  std::uint64_t expected_sequence_ = 0;
  std::uint64_t heard_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t limit_;
  std::uint64_t told_limit_;
};

}  // namespace tendon::v0::detail
