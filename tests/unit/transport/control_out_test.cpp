// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/control_out.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "core/fd.hpp"

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
  const OwnedFd near(fds[0]);
  OwnedFd far(fds[1]);
  ControlOut out(near.get());
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
  const OwnedFd near(fds[0]);
  const OwnedFd far(fds[1]);
  ControlOut out(near.get());
  out.post_last({.kind = MessageKind::goodbye});
  out.post({.kind = MessageKind::ping});
  EXPECT_FALSE(out.try_send(word()));
  std::array<std::byte, 1024> received;  // NOLINT: written before use
  EXPECT_EQ(recv(far.get(), received.data(), received.size(), 0), ssize_t{sizeof(Descriptor)});
  EXPECT_EQ(recv(far.get(), received.data(), received.size(), 0), -1);
}

}  // namespace
}  // namespace tendon::detail
