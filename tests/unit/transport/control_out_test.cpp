// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/control_out.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "core/fd.hpp"
#include "support/memory_stream.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::detail {
namespace {

SendOp word() {
  SendOp op;
  op.descriptor.kind = MessageKind::bytes;
  return op;
}

TEST(ControlOut, WhatIsKnownToBeLostDoesNotCountAsSent) {
  std::array<int, 2> fds{-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
  SocketStream near((OwnedFd(fds[0])));
  OwnedFd far(fds[1]);
  ControlOut out(near);
  EXPECT_TRUE(out.try_send(word()));
  far = OwnedFd();
  EXPECT_FALSE(out.try_send(word())) << "this one met the failure";
  EXPECT_EQ(out.failure(), EPIPE);
  EXPECT_FALSE(out.try_send(word()));
  EXPECT_EQ(out.waiting_bytes(), 0u);
}

TEST(ControlOut, NothingFollowsTheLastWord) {
  std::array<int, 2> fds{-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
  SocketStream near((OwnedFd(fds[0])));
  const OwnedFd far(fds[1]);
  ControlOut out(near);
  out.post_last({.kind = MessageKind::goodbye});
  out.post({.kind = MessageKind::ping});
  EXPECT_FALSE(out.try_send(word()));
  std::array<std::byte, 1024> received;  // NOLINT: written before use
  EXPECT_EQ(recv(far.get(), received.data(), received.size(), 0), ssize_t{sizeof(Descriptor)});
  EXPECT_EQ(recv(far.get(), received.data(), received.size(), 0), -1);
}

TEST(ControlOut, WhatStaysInsideTheStreamWaitsAsWell) {
  auto streams = test::MemoryStream::make_pair({.room_bytes = 100, .record_bytes = 16'000});
  ControlOut out(*streams.first);
  for (int i = 0; i < 3; ++i) out.post({.kind = MessageKind::ping});
  EXPECT_EQ(out.waiting_bytes(), 3 * sizeof(Descriptor) - 100);
  EXPECT_FALSE(out.flush()) << "the wire is full";
  std::array<std::byte, 1024> received;  // NOLINT: written before use
  const iovec piece{received.data(), received.size()};
  std::size_t heard = 0;
  for (int round = 0; round < 10; ++round) {
    heard += streams.second->read({&piece, 1}).bytes;
    out.flush();
  }
  EXPECT_EQ(heard, 3 * sizeof(Descriptor));
  EXPECT_EQ(out.waiting_bytes(), 0u);
}

}  // namespace
}  // namespace tendon::detail
