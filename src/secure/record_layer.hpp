// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "secure/record_format.hpp"
#include "secure/record_protection.hpp"

namespace tendon::v0::detail::secure {

/// The conditions under which keys change.
struct RecordLimits {
  static constexpr std::uint64_t kRecordsOfKey = std::uint64_t{1} << 24;
  static constexpr std::uint64_t kBytesOfKey = std::uint64_t{64} << 30;
  static constexpr std::chrono::minutes kAgeOfKey{10};
  static constexpr std::uint32_t kUpdatesOfPeer = 64;
  static constexpr std::chrono::seconds kUpdatesWithin{32};

  /// The most that one key seals before the next key replaces it.
  std::uint64_t records = kRecordsOfKey;
  std::uint64_t bytes = kBytesOfKey;
  std::chrono::nanoseconds age = kAgeOfKey;
  /// More KeyUpdates of a peer in that time are an attack on our processor.
  std::uint32_t updates = kUpdatesOfPeer;
  std::chrono::nanoseconds updates_within = kUpdatesWithin;
};

/// The traffic secrets that result from a handshake of TLS 1.3.
struct RecordSecrets {
  TrafficSecret sending;
  TrafficSecret receiving;
};

/// The records of one TLS 1.3 connection after its handshake, in both directions: RFC 8446, section
/// 5, for TLS_AES_256_GCM_SHA384 only. It has no socket and no clock.
///
/// A stream of bytes either arrives unchanged at the other end or causes an error. A byte that was
/// changed, dropped, repeated or moved is a protocol_violation, and so are handshake messages other
/// than a whole KeyUpdate. Only close_notify is an orderly end. If both ends have agreed on another
/// session before, the first close_notify in a direction switches to its keys instead.
///
/// Owns:    the secrets and keys of both directions, each wiped once its direction has ended.
/// Threads: one at a time.
/// Errors:  protocol_violation, for the peer's records and by its alerts; peer_lost; pipe_closed
///          from seal() after seal_end(); internal. After any error except pipe_closed, every call
///          but seal_end() returns the same error.
/// Blocks:  never.
/// Cost:    one pass over the bytes; no allocation but for a key update.
class RecordLayer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Errors: not_supported, for a sealer that this build or processor does not have.
  [[nodiscard]] static Result<RecordLayer> make(RecordSecrets secrets, SealerKind kind,
                                                const RecordLimits& limits = {});

  /// The size of a KeyUpdate, the longest record without content.
  static constexpr std::size_t kLeastRoomBytes = kRecordOverheadBytes + kKeyUpdateBytes;

  struct Sealed {
    std::size_t taken_bytes = 0;    ///< of the pieces
    std::size_t written_bytes = 0;  ///< into `room`
  };
  /// Writes records of as much of the pieces as fits in `room`, one after another, and KeyUpdates
  /// where they are due. In less room than kLeastRoomBytes it writes nothing. Precondition: `room`
  /// overlaps no piece.
  [[nodiscard]] Result<Sealed> seal(std::span<const Bytes> pieces, MutableBytes room,
                                    TimePoint now);
  /// Writes the last record: close_notify or, after an error, the alert that reports it to the
  /// peer. 0: the peer needs none, has received one, or `room` has less than kLeastRoomBytes.
  [[nodiscard]] Result<std::size_t> seal_end(MutableBytes room);

  /// Writes close_notify, after which this direction continues under a key of `secret`. The peer
  /// must have called expect_switch(). 0, and no change: `room` has less than kLeastRoomBytes, or
  /// this direction has ended.
  [[nodiscard]] Result<std::size_t> seal_switch(MutableBytes room, TrafficSecret secret);
  /// The peer's next close_notify switches to this secret. Precondition: no switch is expected.
  void expect_switch(TrafficSecret secret) { next_receiving_ = std::move(secret); }
  [[nodiscard]] bool expects_switch() const noexcept {
    return receiving_ && next_receiving_.has_value();
  }

  struct Opened {
    enum class State : std::uint8_t {
      incomplete,  ///< the record has not fully arrived; nothing was done
      opened,      ///< one record; without content, it changed the peer's key or was empty
      ended,       ///< the peer ended its output in order; ignore what follows
    };
    State state = State::incomplete;
    std::size_t taken_bytes = 0;    ///< of `received`
    std::size_t written_bytes = 0;  ///< into the destination, whose other bytes are unspecified
    Bytes rest = {};                ///< content beyond the destination; lies in `received`
  };
  /// Opens the record at the beginning of `received`. Precondition: `destination` does not overlap
  /// it, and nobody reads it before this returns, because content is written before its tag is
  /// compared.
  [[nodiscard]] Result<Opened> open(MutableBytes received, MutableBytes destination, TimePoint now);
  /// The stream below has ended, and all of it was opened. Errors: peer_lost without a
  /// close_notify, because an attacker may have cut the stream.
  [[nodiscard]] Result<void> end_of_stream() const;
  /// Wipes the keys of the peer's records: from now on open() returns `ended`.
  void end_receiving();

 private:
  RecordLayer(const RecordLimits& limits, RecordProtection sending, RecordProtection receiving);

  [[nodiscard]] bool is_update_due(TimePoint now) const;
  [[nodiscard]] Result<std::size_t> seal_update(MutableBytes room);
  [[nodiscard]] Result<std::size_t> seal_alert(Alert alert, MutableBytes room);
  [[nodiscard]] Result<Opened::State> hear_alert(Bytes content);
  [[nodiscard]] Result<void> hear_handshake(Bytes content, TimePoint now);
  [[nodiscard]] Error fail(Alert alert, Error why);

  RecordLimits limits_;
  std::optional<RecordProtection> sending_;      // until seal_end()
  std::optional<RecordProtection> receiving_;    // until the peer's end, or an error
  std::optional<TrafficSecret> next_receiving_;  // used after the peer's next close_notify
  std::optional<Error> error_;
  Alert end_ = Alert::close_notify;  // the alert that seal_end() sends
  // The use and the age of the current sealing key.
  std::uint64_t sealed_bytes_ = 0;
  TimePoint first_sealed_{};
  // The KeyUpdates of the peer.
  std::uint32_t empty_records_ = 0;  // in a row
  bool answer_update_ = false;
  std::uint32_t updates_ = 0;
  TimePoint updates_since_{};
};

}  // namespace tendon::v0::detail::secure
