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

/// When keys change.
struct RecordLimits {
  static constexpr std::uint64_t kRecordsOfKey = std::uint64_t{1} << 24;
  static constexpr std::uint64_t kBytesOfKey = std::uint64_t{64} << 30;
  static constexpr std::chrono::minutes kAgeOfKey{10};
  static constexpr std::uint32_t kUpdatesOfPeer = 64;
  static constexpr std::chrono::seconds kUpdatesWithin{32};

  /// One key seals no more than that; then it is followed by the next one.
  std::uint64_t records = kRecordsOfKey;
  std::uint64_t bytes = kBytesOfKey;
  std::chrono::nanoseconds age = kAgeOfKey;
  /// More KeyUpdates of a peer in that time are an attack on our processor.
  std::uint32_t updates = kUpdatesOfPeer;
  std::chrono::nanoseconds updates_within = kUpdatesWithin;
};

/// The traffic secrets that a handshake of TLS 1.3 ends with.
struct RecordSecrets {
  TrafficSecret sending;
  TrafficSecret receiving;
};

/// The records of one TLS 1.3 connection behind its handshake, both ways: RFC 8446, section 5, in
/// TLS_AES_256_GCM_SHA384 and nothing else. It has no socket and no clock.
///
/// A stream of bytes goes in and the same comes out at the other end, or an error does: a byte that
/// was changed, left out, repeated or moved on the way is a protocol_violation, and so are
/// handshake messages other than a whole KeyUpdate. Only close_notify is an orderly end; where the
/// two ends have agreed on another session before, the first one in a direction is the switch to
/// its keys, and no end.
///
/// Owns:    the secrets and keys of both directions. Each is wiped once its direction is over.
/// Threads: one at a time.
/// Errors:  protocol_violation, of the peer's records and by its alerts; peer_lost; pipe_closed, of
///          seal() after seal_end(); internal. After another error than pipe_closed every call has
///          the same, but seal_end().
/// Blocks:  never.
/// Cost:    one pass over the bytes; no allocation but for a key update.
class RecordLayer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Errors: not_supported, of a sealer that this build or processor does not have.
  [[nodiscard]] static Result<RecordLayer> make(RecordSecrets secrets, SealerKind kind,
                                                const RecordLimits& limits = {});

  /// A KeyUpdate, the longest of the records that carry no content.
  static constexpr std::size_t kLeastRoomBytes = kRecordOverheadBytes + kKeyUpdateBytes;

  struct Sealed {
    std::size_t taken_bytes = 0;    ///< of the pieces
    std::size_t written_bytes = 0;  ///< into `room`
  };
  /// Writes records of as much of the pieces, one after the other, as `room` holds, and KeyUpdates
  /// where they are due. Less room than kLeastRoomBytes gets neither. Precondition: `room` overlaps
  /// no piece.
  [[nodiscard]] Result<Sealed> seal(std::span<const Bytes> pieces, MutableBytes room,
                                    TimePoint now);
  /// Writes the last record: close_notify or, after an error, the alert that tells the peer of it.
  /// 0: the peer needs none, or had one, or `room` has less than kLeastRoomBytes.
  [[nodiscard]] Result<std::size_t> seal_end(MutableBytes room);

  /// Writes close_notify, after which this direction goes on under a key of `secret`: the peer has
  /// called expect_switch(). 0, and nothing changes: `room` has less than kLeastRoomBytes, or this
  /// direction is over.
  [[nodiscard]] Result<std::size_t> seal_switch(MutableBytes room, TrafficSecret secret);
  /// The peer's next close_notify is its switch to this secret. Precondition: none is expected.
  void expect_switch(TrafficSecret secret) { next_receiving_ = std::move(secret); }
  [[nodiscard]] bool expects_switch() const noexcept {
    return receiving_ && next_receiving_.has_value();
  }

  struct Opened {
    enum class State : std::uint8_t {
      incomplete,  ///< the record has not arrived as a whole; nothing was done
      opened,      ///< one record; one without content changed the peer's key, or was empty
      ended,       ///< the peer ended its output in order; what follows is nobody's
    };
    State state = State::incomplete;
    std::size_t taken_bytes = 0;    ///< of `received`
    std::size_t written_bytes = 0;  ///< into the destination, whose other bytes are unspecified
    Bytes rest = {};                ///< content beyond the destination; lies in `received`
  };
  /// Opens the record at the beginning of `received`. Precondition: `destination` does not overlap
  /// it, and nobody reads it before this returns: content is there before its tag was compared.
  [[nodiscard]] Result<Opened> open(MutableBytes received, MutableBytes destination, TimePoint now);
  /// The stream below has ended, and all of it was opened. Errors: peer_lost, without a
  /// close_notify: somebody may have cut it.
  [[nodiscard]] Result<void> end_of_stream() const;
  /// Wipes the keys of the peer's records: from now on open() says `ended`.
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
  std::optional<TrafficSecret> next_receiving_;  // from the peer's next close_notify on
  std::optional<Error> error_;
  Alert end_ = Alert::close_notify;  // what seal_end() says
  // How much the key that seals has done, and since when.
  std::uint64_t sealed_bytes_ = 0;
  TimePoint first_sealed_{};
  // The KeyUpdates of the peer.
  std::uint32_t empty_records_ = 0;  // in a row
  bool answer_update_ = false;
  std::uint32_t updates_ = 0;
  TimePoint updates_since_{};
};

}  // namespace tendon::v0::detail::secure
