// SPDX-License-Identifier: Apache-2.0
// The frames of the handshake: docs/protocol.md, "Hello", has every byte.
//
//   offset 0  "TNDN"          4  u16 major   6  u16 minor   8  u16 lowest major spoken   10  u16
//   zero
//          12 u32 bytes that follow, at most kMaxHelloBytes - 16, then TLVs {u16 type, u16 length,
//          bytes}
//
// Little endian. A TLV of unknown type is skipped, unless its top bit says that it is critical.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/version.hpp>
#include <tendon/core/words.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/session/path.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

/// What a frame says. Numbers are on the wire.
enum class HelloKind : std::uint8_t {
  hello = 1,  ///< the identity of its sender; both sides
  attach =
      2,      ///< my descriptors, passed beside this frame, and the nonce that lies in their memory
  path = 3,   ///< connector: the path it chose, and why
  ready = 4,  ///< the last frame: whatever follows belongs to the link
  reject = 5,  ///< no, and why; the connection ends
  lane = 6,    ///< connector: this connection is one more lane of a link that exists
};
TENDON_WORDS(HelloKind, hello, attach, path, ready, reject, lane);
/// Does a thread answer for this Context while its user computes? `manual`: silence proves nothing.
enum class ProgressMode : std::uint8_t { service = 1, manual = 2 };
/// Has this pair of Contexts a link already?
enum class Reuse : std::uint8_t { fresh = 1, reuse = 2 };

/// Says which versions of the protocol a side speaks: all majors in [min_major, major].
struct ProtocolVersion {
  std::uint16_t major = kProtocolMajor;
  std::uint16_t minor = kProtocolMinor;
  std::uint16_t min_major = kProtocolMajor;

  friend bool operator==(const ProtocolVersion&, const ProtocolVersion&) = default;
};

/// The major that both speak, the highest one. Minors never separate: what one does not know it
/// skips. Errors: version_mismatch naming both ranges; protocol_violation for a range that is none.
[[nodiscard]] Result<std::uint16_t> agree_on_major(const ProtocolVersion& ours,
                                                   const ProtocolVersion& theirs);

/// What one side takes from the other on a link. None may be zero in a hello.
struct LinkLimits {
  std::uint64_t link_cap_bytes = 0;   ///< memory of all slots, per direction; <= kMaxPeerCapBytes
  std::uint32_t window_messages = 0;  ///< messages of one pipe not yet taken
  std::uint64_t window_bytes = 0;     ///< bytes of one pipe not yet taken
  std::uint32_t max_leaves = 0;       ///< leaves of a schema
  std::uint32_t streams = 0;          ///< bulk connections of a tcp link

  friend bool operator==(const LinkLimits&, const LinkLimits&) = default;
};

// clang-format off
/// One frame. Which fields must be there depends on the kind ("*": required, "o": used):
///
///   field                 hello attach path ready reject lane
///   profile                 *
///   context_id              *     o                       *
///   incarnation, pid, uid   *
///   progress, limits        *
///   host, name              o
///   library_version         o
///   boot_id, features       o
///   token                   o       acceptor: names its rendezvous socket
///   ticket                  o     o     o     o           *    ties the connections of one link
///   nonce                         *
///   connection                    o       connector at a rendezvous: the connection it is for
///   reuse                   o
///   path                                *
///   reason                  o           o           o          in hello: why there is no token
///   error_code                                      *
///   lane_index                                            *
///
/// A known field in another kind is checked and kept. Zero and empty mean absent; texts are UTF-8
/// without control characters.
// clang-format on
struct HelloMessage {
  HelloKind kind = HelloKind::hello;
  ProtocolVersion version;
  std::optional<Profile> profile;
  ContextId context_id;
  std::uint64_t incarnation = 0;
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  std::string host;             ///< <= kMaxIdentityTextBytes
  std::string name;             ///< <= kMaxIdentityTextBytes
  std::string library_version;  ///< <= kMaxVersionTextBytes
  Nonce128 boot_id{};
  Nonce128 token{};
  Nonce128 ticket{};
  Nonce128 nonce{};
  std::string connection;  ///< <= kMaxConnectionTextBytes; connection_text()
  std::optional<ProgressMode> progress;
  std::optional<Reuse> reuse;
  std::optional<LinkLimits> limits;
  std::uint64_t features = 0;
  PathKind path = PathKind::none;
  std::string reason;  ///< <= kMaxReasonBytes
  std::uint16_t error_code = 0;
  std::uint32_t lane_index = 0;

  friend bool operator==(const HelloMessage&, const HelloMessage&) = default;
};

/// The frame of `message`. Texts beyond their cap are cut at a character, and control characters
/// become spaces: a reason may be built from anything.
[[nodiscard]] std::vector<std::byte> encode(const HelloMessage& message);
/// Reads one whole frame. Errors: protocol_violation, version_mismatch.
[[nodiscard]] Result<HelloMessage> decode(Bytes frame);

/// The sender of this hello.
[[nodiscard]] PeerIdentity identity_of(const HelloMessage& hello);
/// The frame that refuses, with the error's code and detail.
[[nodiscard]] HelloMessage rejection_of(const Error& error);
/// The error that a `reject` frame becomes here. A peer may only choose among the codes that a
/// refusal can have; any other is `unreachable`, with the number in the text.
[[nodiscard]] Error error_of(const HelloMessage& reject);

/// Cuts a byte stream into frames. The only door for bytes of a peer that has not been admitted.
class HelloReader {
 public:
  /// Takes what it needs from the front of `input` and leaves the rest to the next reader. A
  /// message when one is complete, nothing when more bytes are needed. After an error every call
  /// returns it again. Holds at most kMaxHelloBytes, and only bytes that came.
  [[nodiscard]] Result<std::optional<HelloMessage>> on_bytes(Bytes& input);
  /// Bytes of a frame that has begun.
  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return buffer_.size(); }

 private:
  std::vector<std::byte> buffer_;
  std::optional<Error> failure_;
};

}  // namespace tendon::v0::detail
