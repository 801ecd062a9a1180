// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/socket_stream.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include "support/raw_socket.hpp"

namespace tendon::test {
namespace {

using detail::OwnedFd;
using detail::SocketStream;
using detail::StreamIo;

class SocketStreamTest : public testing::Test {
 protected:
  SocketStreamTest() {
    std::array<int, 2> fds{-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    stream_ = std::make_unique<SocketStream>(OwnedFd(fds[0]));
    far_ = OwnedFd(fds[1]);
  }
  StreamIo read() {
    std::array<iovec, 2> pieces{{{first_.data(), first_.size()}, {second_.data(), second_.size()}}};
    return stream_->read(pieces);
  }
  StreamIo write(std::string text) {
    std::array<iovec, 2> pieces{{{text.data(), 1}, {text.data() + 1, text.size() - 1}}};
    return stream_->write(pieces);
  }

  std::unique_ptr<SocketStream> stream_;
  OwnedFd far_;
  std::array<char, 2> first_{};
  std::array<char, 8> second_{};
};

TEST_F(SocketStreamTest, MovesBytesInOrderOfThePieces) {
  EXPECT_EQ(read().state, StreamIo::State::later);
  ASSERT_EQ(send(far_.get(), "abcde", 5, 0), 5);
  const StreamIo io = read();
  EXPECT_EQ(io.state, StreamIo::State::moved);
  EXPECT_EQ(io.bytes, 5u);
  EXPECT_EQ(io.inside_bytes, 0u);
  EXPECT_EQ(std::string(first_.data(), 2) + std::string(second_.data(), 3), "abcde");
  EXPECT_EQ(write("xyz").bytes, 3u);
  std::array<char, 8> got{};
  EXPECT_EQ(recv(far_.get(), got.data(), got.size(), 0), 3);
  EXPECT_STREQ(got.data(), "xyz");
}

TEST_F(SocketStreamTest, AnEndInOrderIsNotALoss) {
  ASSERT_EQ(send(far_.get(), "a", 1, 0), 1);
  ASSERT_EQ(shutdown(far_.get(), SHUT_WR), 0);
  EXPECT_EQ(read().bytes, 1u);
  EXPECT_EQ(read().state, StreamIo::State::ended);
  EXPECT_EQ(write("xyz").bytes, 3u) << "the other half is open";
  stream_->end_output();
  const StreamIo late = write("xyz");
  EXPECT_EQ(late.state, StreamIo::State::lost);
  EXPECT_EQ(late.error, EPIPE);
}

TEST_F(SocketStreamTest, AFullOneSaysLater) {
  const std::string much(100'000, 'x');
  StreamIo io;
  while ((io = write(much)).state == StreamIo::State::moved) {
  }
  EXPECT_EQ(io.state, StreamIo::State::later);
}

TEST_F(SocketStreamTest, KnowsTheUserOfAUnixSocketOnly) {
  EXPECT_EQ(stream_->peer().user, geteuid());
  SocketStream tcp(OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  EXPECT_FALSE(tcp.peer().user);
}

TEST_F(SocketStreamTest, CarriesNoDescriptors) {
  send_descriptors(far_.get(), "a", far_.get(), 1);
  const StreamIo io = read();
  EXPECT_EQ(io.state, StreamIo::State::lost);
  EXPECT_EQ(io.error, EPROTO);
}

TEST_F(SocketStreamTest, DiscardedInputLeavesTheEndInOrder) {
  ASSERT_EQ(send(far_.get(), "unread", 6, 0), 6);
  EXPECT_EQ(write("last").bytes, 4u);
  stream_->discard_input();
  stream_.reset();
  std::array<char, 8> got{};
  EXPECT_EQ(recv(far_.get(), got.data(), got.size(), 0), 4);
  EXPECT_EQ(recv(far_.get(), got.data(), got.size(), 0), 0) << "not a broken connection";
}

}  // namespace
}  // namespace tendon::test
