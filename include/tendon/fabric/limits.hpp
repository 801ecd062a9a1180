// SPDX-License-Identifier: Apache-2.0
// The limits of the fabric. They hold for what is made here and for what peers say. All are
// compared before anything is allocated, and each is tested at the limit and one beyond.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tendon {
inline namespace v0 {

/// Bytes of a key expression. An announcement is one.
inline constexpr std::size_t kMaxKeyBytes = 4096;
/// Chunks of a key expression; 7 of them stand before the topic in an announcement.
inline constexpr std::size_t kMaxKeyChunks = 64;
/// Bytes of the name of a domain or a node as a chunk of a key, with its escapes.
inline constexpr std::size_t kMaxNameChunkBytes = 255;
/// Addresses of one node, not counting the unix socket of its host.
inline constexpr std::size_t kMaxAnnouncedAddresses = 4;
/// Samples that a publisher keeps for late subscribers.
inline constexpr std::uint32_t kMaxHistorySamples = 65536;
/// Subscriptions of one publisher, of all peers together.
inline constexpr std::size_t kMaxSubscriptions = 4096;
/// Keys that a Context announces to one peer, without a discovery service, and their bytes.
inline constexpr std::size_t kMaxAnnouncements = 16384;
inline constexpr std::uint64_t kMaxAnnouncedBytes = std::uint64_t{4} << 20;
/// The same where one of the two is of protocol 1.1 or older, which has no `many_channels`.
inline constexpr std::size_t kMaxOldAnnouncements = 4096;
inline constexpr std::uint64_t kMaxOldAnnouncedBytes = std::uint64_t{1} << 20;
/// Requests of one caller to one responder that have no answer yet; further ones wait at the
/// caller.
inline constexpr std::size_t kMaxOpenCalls = 128;
/// The most that ResponderOptions::handlers and ResponderOptions::waiting may be.
inline constexpr std::uint32_t kMaxHandlers = 256;
inline constexpr std::uint32_t kMaxWaitingRequests = 4096;
/// Addresses in NodeOptions::peers, for all nodes of a Context.
inline constexpr std::size_t kMaxStaticPeers = 64;
/// Bytes of a link in one frame of a cable.
inline constexpr std::size_t kMaxCablePayloadBytes = std::size_t{48} << 10;
/// Bytes on their way to one Context through routers, or untaken there, over all of its cables.
inline constexpr std::uint64_t kCableWindowBytes = std::uint64_t{1} << 20;
/// Cables of one Context; a routed link is two.
inline constexpr std::size_t kMaxCables = 32;
/// Bytes of a question of one Context to another through Zenoh. Larger ones are dropped unread.
inline constexpr std::size_t kMaxQuestionBytes = std::size_t{64} << 10;
/// Dials back for one asker in a second, and ends of cables granted to it in a second.
inline constexpr std::uint32_t kMaxDialsBackPerSecond = 1;
inline constexpr std::uint32_t kMaxCableRequestsPerSecond = 4;
/// The default of PublisherOptions::plain_bytes.
inline constexpr std::uint64_t kDefaultPlainBytes = 49152;
/// Bytes of a sample for plain Zenoh peers, or from one [bytes].
inline constexpr std::uint64_t kMaxPlainBytes = 33554432;
/// Bytes that plain Zenoh peers put and a subscriber has not taken yet, together [bytes].
inline constexpr std::uint64_t kMaxPlainWaitingBytes = 67108864;

/// Bytes of PublisherOptions::encoding, and of the encoding of a plain Zenoh peer's message.
inline constexpr std::size_t kMaxEncodingBytes = 255;

}  // namespace v0
}  // namespace tendon
