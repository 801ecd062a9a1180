// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "core/fork_guard.hpp"
#include "secure/record_format.hpp"
#include "secure/sealer.hpp"
#include "secure/sealer_choice.hpp"
#include "secure/secret.hpp"

namespace tendon::v0::detail::secure {

/// As long as SHA-384, the hash of our suite.
using TrafficSecret = Secret<48>;

/// The sequence, most significant byte first, XORed into the last bytes of `iv` (RFC 8446, section
/// 5.3).
[[nodiscard]] Nonce nonce_of(Bytes iv, std::uint64_t sequence);

/// One direction of a connection: seals or opens its records in TLS_AES_256_GCM_SHA384 (RFC 8446,
/// sections 5.2, 5.3 and 7.3).
///
/// Owns:    the traffic secret and the values derived from it, which it wipes.
/// Threads: one at a time.
/// Errors:  protocol_violation from open(); limit_exceeded at the last sequence number, which stays
///          unused, so that none is used twice; internal, where a library fails; `forked` in a
///          child, which lacks the keys and shares the sequence with its parent.
/// Blocks:  never.
/// Cost:    one pass over the bytes of a record. advance() derives and expands a key.
class RecordProtection {
 public:
  static constexpr std::size_t kMaxPieces = 15;

  /// Starts at the first record after the handshake; tests start later.
  [[nodiscard]] static Result<RecordProtection> make(TrafficSecret secret, SealerKind kind,
                                                     std::uint64_t first_sequence = 0);

  /// Writes one record and returns its length. Precondition: no piece is empty, there are at most
  /// kMaxPieces with kMaxContentBytes, and `record` has room for them and kRecordOverheadBytes.
  [[nodiscard]] Result<std::size_t> seal(ContentType type, std::span<const Bytes> pieces,
                                         MutableBytes record);

  /// The contents of a record: its type and its length. The first bytes fill `front`; the others
  /// stay where they were sealed.
  struct Opened {
    ContentType type = ContentType::none;
    std::size_t content_bytes = 0;
  };
  /// Opens one record, whose `header` preceded it. After an error both `sealed` and `front` are
  /// zeros, so that nobody sees an attacker's bytes. Precondition: `sealed` is longer than a tag.
  [[nodiscard]] Result<Opened> open(Bytes header, MutableBytes sealed, MutableBytes front);

  /// Switches to the next key (RFC 8446, section 7.2), whose sequence begins at 0.
  [[nodiscard]] Result<void> advance();

  /// Switches to a key of another session, whose sequence begins at 0.
  [[nodiscard]] Result<void> replace(TrafficSecret secret);

  /// The number of the next record under this key.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }

 private:
  RecordProtection(SealerKind kind, std::uint64_t sequence) : kind_(kind), sequence_(sequence) {}
  [[nodiscard]] Result<void> use(TrafficSecret secret);
  [[nodiscard]] Result<void> check_process() const;
  [[nodiscard]] Result<Nonce> next_nonce();

  std::uint32_t process_ = process_number();
  SealerKind kind_;
  std::uint64_t sequence_;
  TrafficSecret secret_;
  Secret<sizeof(Nonce)> iv_;
  std::unique_ptr<Sealer> sealer_;
};

}  // namespace tendon::v0::detail::secure
