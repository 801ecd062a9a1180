// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/fd.hpp"
#include "memory/slot_pool.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

struct TcpLinkOptions {
  Path path;
  PeerIdentity peer;
  std::uint64_t cap_bytes = 0;
  std::uint64_t peer_cap_bytes = 0;
  OwnedFd control;                          ///< connected, handshake done, non-blocking
  std::vector<std::byte> received_already;  ///< bytes behind the handshake, read together with it
  std::shared_ptr<SlotPool> pool;           ///< where loans lie and bulk arrives
  std::uint32_t lanes = 0;  ///< bulk connections that the peer makes: what they bring is waited for
  std::chrono::milliseconds lease{3000};  ///< silence after which the link fails
  bool expect_signs_of_life = true;  ///< false: the peer progresses manually, silence means nothing
  bool gives_signs_of_life = true;   ///< false: this process does, its silence means nothing there
};

/// A link over sockets: one control lane, and bulk lanes that add_lane() brings.
class TcpLink : public Link {
 public:
  using Link::Link;
  /// A further connection for bulk frames, handshake done. Thread-safe; frames queued so far may
  /// use it.
  [[nodiscard]] virtual Result<void> add_lane(OwnedFd fd) = 0;
};

[[nodiscard]] Result<std::shared_ptr<TcpLink>> make_tcp_link(TcpLinkOptions options);

}  // namespace tendon::v0::detail
