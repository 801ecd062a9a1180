// SPDX-License-Identifier: Apache-2.0
// The frames of the handshake: docs/protocol.md, "Hello", has every byte.
//
//   offset 0  "TNDN"
//          4  u16 major
//          6  u16 minor
//          8  u16 lowest major spoken
//         10  u16 zero
//         12  u32 bytes that follow, at most kMaxHelloBytes - 16
//         16  TLVs {u16 type, u16 length, bytes}
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

/// The meaning of a frame. The numbers are on the wire.
enum class HelloKind : std::uint8_t {
  hello = 1,   ///< the identity of its sender; both sides
  attach = 2,  ///< my descriptors, passed with this frame, and the nonce in their memory
  path = 3,    ///< connector: the path it chose, and why
  ready = 4,   ///< the last frame: all later bytes belong to the link
  reject = 5,  ///< a refusal with its reason; the connection ends
  lane = 6,    ///< connector: this connection is a further lane of an existing link
};
TENDON_WORDS(HelloKind, hello, attach, path, ready, reject, lane);
/// Whether a thread responds for this Context while its user computes. `manual`: silence proves
/// nothing.
enum class ProgressMode : std::uint8_t { service = 1, manual = 2 };
/// Whether this pair of Contexts has a link already.
enum class Reuse : std::uint8_t { fresh = 1, reuse = 2 };

/// The versions of the protocol that a side speaks: all majors in [min_major, major].
struct ProtocolVersion {
  std::uint16_t major = kProtocolMajor;
  std::uint16_t minor = kProtocolMinor;
  std::uint16_t min_major = kProtocolMajor;

  friend bool operator==(const ProtocolVersion&, const ProtocolVersion&) = default;
};

/// The highest major that both speak. Minors never separate, because unknown additions are skipped.
/// Errors: version_mismatch naming both ranges; protocol_violation for an invalid range.
[[nodiscard]] Result<std::uint16_t> agree_on_major(const ProtocolVersion& ours,
                                                   const ProtocolVersion& theirs);

/// The limits that one side sets for the other on a link. None may be zero in a hello.
struct LinkLimits {
  std::uint64_t link_cap_bytes = 0;   ///< memory of all slots, per direction; <= kMaxPeerCapBytes
  std::uint32_t window_messages = 0;  ///< messages of one pipe not yet taken
  std::uint64_t window_bytes = 0;     ///< bytes of one pipe not yet taken
  std::uint32_t max_leaves = 0;       ///< leaves of a schema
  std::uint32_t streams = 0;          ///< bulk connections of a tcp link

  friend bool operator==(const LinkLimits&, const LinkLimits&) = default;
};

// clang-format off
/// One frame. The kind decides which fields are required ("*") or used ("o"):
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
///   connection                    o       connector at a rendezvous: the connection to prove
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

/// Encodes `message` as a frame. Texts beyond their cap are cut at a character, and control
/// characters become spaces, because a reason may contain any text.
[[nodiscard]] std::vector<std::byte> encode(const HelloMessage& message);
/// Reads one whole frame. Errors: protocol_violation, version_mismatch.
[[nodiscard]] Result<HelloMessage> decode(Bytes frame);

/// The sender of this hello.
[[nodiscard]] PeerIdentity identity_of(const HelloMessage& hello);
/// Makes the frame that refuses, with the error's code and detail.
[[nodiscard]] HelloMessage rejection_of(const Error& error);
/// Converts a `reject` frame to an error. A peer may choose only among the codes of a refusal; any
/// other becomes `unreachable`, with the number in the text.
[[nodiscard]] Error error_of(const HelloMessage& reject);

/// Cuts a byte stream into frames. It is the only entry for bytes of a peer that is not yet
/// admitted.
class HelloReader {
 public:
  /// Takes the bytes it needs from the front of `input` and leaves the rest to the next reader.
  /// Returns a message when one is complete, nothing when more bytes are needed. After an error
  /// every call returns it again. Holds at most kMaxHelloBytes, and only bytes that have arrived.
  [[nodiscard]] Result<std::optional<HelloMessage>> on_bytes(Bytes& input);
  /// The bytes held of an unfinished frame.
  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return buffer_.size(); }

 private:
  std::vector<std::byte> buffer_;
  std::optional<Error> failure_;
};

}  // namespace tendon::v0::detail
