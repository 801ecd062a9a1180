// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/result.hpp>

#include "memory/slot_pool.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// Passes `fd` to the peer at the other end of a link's socket, with a word that describes it.
/// False: the socket has no room now. Errors: peer_lost.
[[nodiscard]] Result<bool> pass_descriptor(int socket, Descriptor word, int fd,
                                           const std::string& peer_name);

/// The word that announces a segment of slots in host memory.
[[nodiscard]] Descriptor segment_word(const SegmentInfo& info);

}  // namespace tendon::v0::detail
