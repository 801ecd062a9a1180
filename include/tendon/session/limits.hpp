// SPDX-License-Identifier: Apache-2.0
// The limits of the wire: how much one peer may make another one hold, read or wait for. All are
// compared before anything is allocated, and each is tested at the limit and one beyond.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <tendon/tensor/limits.hpp>  // kMaxValuesBytes is a limit of the wire as well

namespace tendon {
inline namespace v0 {

/// Bytes of a frame of the handshake, with its 16-byte header.
inline constexpr std::size_t kMaxHelloBytes = 4096;
/// Bytes of UTF-8 in the host of a peer, and in its name.
inline constexpr std::size_t kMaxIdentityTextBytes = 255;
/// Bytes of the version text in a hello.
inline constexpr std::size_t kMaxVersionTextBytes = 64;
/// Bytes of the two addresses of a connection, in the proof of the same host.
inline constexpr std::size_t kMaxConnectionTextBytes = 160;
/// Bytes of the reason in a rejection or a choice of path.
inline constexpr std::size_t kMaxReasonBytes = 512;
/// A peer's link_cap_bytes, as its hello says it: values computed from it must not overflow.
inline constexpr std::uint64_t kMaxPeerCapBytes = std::uint64_t{1} << 62;
/// Time from accepting a connection to its first whole frame; a slower one is closed.
inline constexpr std::chrono::seconds kFirstFrameTimeout{1};
/// Time from accepting a connection to `ready`; a slower peer is dropped.
inline constexpr std::chrono::seconds kHandshakeTimeout{5};
/// Connections of one listener without a whole frame yet; a newcomer replaces the oldest.
inline constexpr std::size_t kSilentPerListener = 256;
/// Connections of one listener between their first frame and `ready`. At the limit a newcomer
/// replaces one that has been silent for kFirstFrameTimeout; else the newcomer is refused.
inline constexpr std::size_t kHandshakesPerListener = 64;
/// Connections of both kinds from one address; loopback, unix sockets and the own host are exempt.
inline constexpr std::size_t kConnectionsPerSource = 16;
/// A listener's ticket opens pipes for at least this long, and less than twice as long. Time counts
/// only while its Context makes progress.
inline constexpr std::chrono::seconds kTicketAge{15};
/// Pipes of one listener that wait for accept(); connect returns before accept is called.
inline constexpr int kBacklog = 64;
/// Links of one Context, dialled or accepted. At the limit an unproved link without pipes is closed
/// for the new one.
inline constexpr std::size_t kMaxLinksPerContext = 1024;
/// A small RLIMIT_NOFILE allows fewer links. kDescriptorsBesideLinks are left for all other uses. A
/// link takes kDescriptorsPerLink, and one more for each of its bulk lanes
/// (ContextOptions::streams).
inline constexpr std::uint64_t kDescriptorsBesideLinks = 64;
inline constexpr std::uint64_t kDescriptorsPerLink = 3;
/// Links without proofs that were made from one address. Loopback, unix sockets, the own host and
/// routed links are exempt. At the limit a link without pipes is closed for the new one.
inline constexpr std::size_t kMaxLinksPerSource = 64;
/// Links without proofs that peers made, that claim one context id under different identities.
inline constexpr std::size_t kMaxClaimsPerContext = 4;
/// Ended links of peers that held slots and are not proved dead, which one Context keeps. Beyond
/// the limit the oldest is released, with its memory.
inline constexpr std::size_t kMaxQuarantinedLinks = 64;
/// Time from the end of the handshake, or from the last bulk lane, to the first pipe.
inline constexpr std::chrono::seconds kFirstPipeTimeout{5};
/// A peer that is silent for this long is suspect: an event says so, nothing is reclaimed. Over
/// sockets a shorter lease replaces it.
inline constexpr std::chrono::seconds kSuspectAfter{1};

/// A body up to this size travels beside its descriptor, a longer one in a slot or in bulk frames.
/// It is a constant of the wire: both ends refuse a body that travels the other way, so another
/// value needs another major version of the protocol.
inline constexpr std::size_t kMaxInlineBytes = 8192;
/// Bytes of a frame on a bulk stream; larger payloads are cut, so that nothing urgent waits behind
/// them.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 20;
/// Bytes of the user's header of a raw message.
inline constexpr std::size_t kMaxMessageHeaderBytes = 4096;
/// Pipes open at once between two Contexts.
inline constexpr std::uint32_t kMaxPipesPerLink = 16384;
/// The same if one of the two speaks protocol 1.1 or older, which has no `many_channels`.
inline constexpr std::uint32_t kMaxPipesPerOldLink = 1024;
/// GPUs that one side of a link may offer to the other.
inline constexpr std::size_t kMaxDevicesPerLink = 64;
/// Messages of one pipe that the receiver has not taken yet; the sender waits for credit.
inline constexpr std::uint32_t kPipeWindowMessages = 256;
/// Bytes of one pipe, over sockets, that its receiver has not taken yet [bytes]. A message of any
/// size may leave while less than kPipeCreditBytes are open, and a second one as large within the
/// cap of the link. Over shared memory that cap bounds them.
inline constexpr std::uint64_t kPipeWindowBytes = std::uint64_t{64} << 20;
/// A receiver reports its total after this many messages or bytes. The sender may therefore see
/// fewer than these as open although everything was taken.
inline constexpr std::uint32_t kPipeCreditMessages = kPipeWindowMessages / 4;
inline constexpr std::uint64_t kPipeCreditBytes = kPipeWindowBytes / 8;
/// Bodies beside descriptors that wait on one link, of all pipes, for the receiver's program: an
/// eighth of its link_cap_bytes, but at least this [bytes]. A link that holds more is not read.
inline constexpr std::uint64_t kMinSmallHeldBytes = std::uint64_t{4} << 20;
/// Bulk connections of one tcp link.
inline constexpr std::uint32_t kMaxStreamsPerLink = 16;

/// Bytes of a name that the resolver accepts (RFC 1035, 2.3.4).
inline constexpr std::size_t kMaxHostNameBytes = 253;
/// Bytes of the path of a unix socket, without the final zero (`sun_path` of unix(7)).
inline constexpr std::size_t kMaxUnixPathBytes = 107;
/// Look-ups that outlived their deadline; each holds a thread until the resolver answers.
inline constexpr int kMaxPendingLookups = 16;

}  // namespace v0
}  // namespace tendon
