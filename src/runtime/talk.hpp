// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <tendon/core/result.hpp>
#include <utility>

#include "runtime/handshake_stream.hpp"
#include "runtime/watch.hpp"
#include "session/hello.hpp"

namespace tendon::v0::detail {

/// A connection on which this side begins a handshake, in the Context's epoll.
///
/// Owns:    the connection, until it is released to a link.
/// Threads: the calling one.
/// Errors:  those of the epoll.
/// Blocks:  never.
/// Cost:    a call of the kernel.
struct Talk {
  [[nodiscard]] static Result<Talk> over(ContextCore& context, std::unique_ptr<ByteStream> made) {
    // EPOLLOUT continues a frame that found no room.
    constexpr std::uint32_t kTalking = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    HandshakeStream stream(std::move(made), Handshake::connector());
    TENDON_TRY(watch, Watch::make(context, stream.stream()->fd(), kTalking));
    return Talk{std::move(stream), std::move(watch), {}};
  }

  HandshakeStream stream;
  Watch watch;
  HelloMessage peer;  // set once the peer has answered
};

}  // namespace tendon::v0::detail
