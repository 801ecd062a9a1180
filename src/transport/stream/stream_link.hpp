// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "memory/slot_pool.hpp"
#include "transport/link.hpp"
#include "transport/link_renewal.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// The most bytes that one poll() takes from all streams of a link together, so that its lock is
/// not held for long. One stream takes at most half of it.
inline constexpr std::uint64_t kPollBytes = std::uint64_t{8} << 20;

struct StreamLinkOptions {
  Path path;
  PeerIdentity peer;
  std::uint64_t cap_bytes = 0;
  std::uint64_t peer_cap_bytes = 0;
  std::unique_ptr<ByteStream> control;      ///< handshake done
  std::vector<std::byte> received_already;  ///< bytes behind the handshake, read together with it
  std::shared_ptr<SlotPool> pool;           ///< holds loans and received bulk
  std::uint32_t lanes = 0;  ///< bulk connections that the peer makes: their bodies are awaited
  std::uint64_t poll_bytes = kPollBytes;
  std::chrono::milliseconds lease{3000};  ///< silence after which the link fails
  bool expect_signs_of_life = true;       ///< false: the peer progresses manually, so may be silent
  bool gives_signs_of_life = true;        ///< false: this process progresses manually
  LinkRenewalOptions renewal{};
};

/// A link over byte streams: one control lane, and the bulk lanes that add_lane() adds.
class StreamLink : public Link {
 public:
  StreamLink(Path path, PeerIdentity peer, std::uint64_t cap_bytes, std::uint64_t peer_cap_bytes)
      : Link(LinkTraits{}, std::move(path), std::move(peer), cap_bytes, peer_cap_bytes) {}
  /// Adds a connection for bulk frames whose handshake is done. Thread-safe; frames that are
  /// already queued may use it.
  [[nodiscard]] virtual Result<void> add_lane(std::unique_ptr<ByteStream> stream) = 0;
  /// Sends the last frame of the handshake if that frame must name this link. Call it before
  /// start().
  virtual void say_first(Bytes frame) = 0;
};

[[nodiscard]] Result<std::shared_ptr<StreamLink>> make_stream_link(StreamLinkOptions options);

}  // namespace tendon::v0::detail
