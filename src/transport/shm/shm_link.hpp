// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "core/fd.hpp"
#include "memory/publish_pool.hpp"
#include "memory/segment.hpp"
#include "session/nonce128.hpp"
#include "transport/link.hpp"
#include "transport/link_renewal.hpp"

namespace tendon::v0::detail {

struct ShmLinkOptions {
  Path path;
  PeerIdentity peer;
  std::uint64_t cap_bytes = 0;
  std::uint64_t peer_cap_bytes = 0;
  OwnedFd socket;                    ///< unix stream socket, handshake done, non-blocking
  std::shared_ptr<Segment> mine;     ///< made by make_control_segment()
  std::shared_ptr<Segment> theirs;   ///< attached by attach_control_segment()
  OwnedFd peer_doorbell;             ///< the peer's eventfd
  OwnedFd peer_process;              ///< the pidfd that the peer opened on itself
  bool expect_signs_of_life = true;  ///< false: the peer progresses manually, silence means nothing
  std::shared_ptr<PublishPool> publish_pool = {};  ///< null: the peer takes no holds
  LinkRenewalOptions renewal{};                    ///< of the session in which it was proved
};

/// Makes a control block in a segment of its own, with `nonce`.
[[nodiscard]] Result<std::shared_ptr<Segment>> make_control_segment(const Nonce128& nonce);
/// Maps the peer's control block; an error unless it contains `nonce`, which was sent over the
/// socket. Reading it proves that both processes see the same memory.
[[nodiscard]] Result<std::shared_ptr<Segment>> attach_control_segment(OwnedFd fd,
                                                                      const Nonce128& nonce);

[[nodiscard]] Result<std::shared_ptr<Link>> make_shm_link(ShmLinkOptions options);

}  // namespace tendon::v0::detail
