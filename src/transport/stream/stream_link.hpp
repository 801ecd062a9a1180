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

/// What one poll() takes from all streams of a link together, so that its lock is not held for
/// long; one stream takes at most half of it.
inline constexpr std::uint64_t kPollBytes = std::uint64_t{8} << 20;

struct StreamLinkOptions {
  Path path;
  PeerIdentity peer;
  std::uint64_t cap_bytes = 0;
  std::uint64_t peer_cap_bytes = 0;
  std::unique_ptr<ByteStream> control;      ///< handshake done
  std::vector<std::byte> received_already;  ///< bytes behind the handshake, read together with it
  std::shared_ptr<SlotPool> pool;           ///< where loans lie and bulk arrives
  std::uint32_t lanes = 0;  ///< bulk connections that the peer makes: what they bring is waited for
  std::uint64_t poll_bytes = kPollBytes;
  std::chrono::milliseconds lease{3000};  ///< silence after which the link fails
  bool expect_signs_of_life = true;  ///< false: the peer progresses manually, silence means nothing
  bool gives_signs_of_life = true;   ///< false: this process does, its silence means nothing there
  LinkRenewalOptions renewal{};
};

/// A link over byte streams: one control lane, and bulk lanes that add_lane() brings.
class StreamLink : public Link {
 public:
  StreamLink(Path path, PeerIdentity peer, std::uint64_t cap_bytes, std::uint64_t peer_cap_bytes)
      : Link(LinkTraits{}, std::move(path), std::move(peer), cap_bytes, peer_cap_bytes) {}
  /// A further connection for bulk frames, handshake done. Thread-safe; frames queued so far may
  /// use it.
  [[nodiscard]] virtual Result<void> add_lane(std::unique_ptr<ByteStream> stream) = 0;
  /// The last frame of the handshake, where it has to name this link: call it before start().
  virtual void say_first(Bytes frame) = 0;
};

[[nodiscard]] Result<std::shared_ptr<StreamLink>> make_stream_link(StreamLinkOptions options);

}  // namespace tendon::v0::detail
