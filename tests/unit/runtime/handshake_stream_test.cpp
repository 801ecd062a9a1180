// SPDX-License-Identifier: Apache-2.0
// The handshake over streams: in small pieces, and with descriptors beside it.
#include "runtime/handshake_stream.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>

#include "runtime/rendezvous_socket.hpp"
#include "support/expect.hpp"
#include "support/memory_stream.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

using detail::Handshake;
using detail::HandshakeStep;
using detail::HandshakeStream;
using detail::HelloKind;
using detail::HelloMessage;
using detail::Next;
using detail::OwnedFd;
using detail::RendezvousSocket;

HelloMessage frame_of(HelloKind kind) {
  HelloMessage message;
  message.kind = kind;
  message.path = PathKind::tcp;
  return message;
}

// Advances until the stream has a result.
HandshakeStep advance(HandshakeStream& stream) {
  HandshakeStep step;
  (void)eventually([&] { return (step = stream.advance()).next != Next::read; });
  return step;
}

class HandshakeInCrumbs : public testing::TestWithParam<MemoryStream::Manner> {};

TEST_P(HandshakeInCrumbs, ReachesItsEndAndReadsNotAByteMore) {
  auto streams = MemoryStream::make_pair(GetParam());
  HandshakeStream connector(std::move(streams.first), Handshake::connector());
  HandshakeStream acceptor(std::move(streams.second), Handshake::acceptor());
  ASSERT_EQ(connector.reply(claims()).next, Next::read);
  EXPECT_EQ(acceptor.heard(), detail::Heard::nothing);
  ASSERT_EQ(advance(acceptor).message.value().kind, HelloKind::hello);
  EXPECT_EQ(acceptor.heard(), detail::Heard::word);
  ASSERT_EQ(acceptor.reply(claims()).next, Next::read);
  ASSERT_EQ(advance(connector).message.value().kind, HelloKind::hello);
  ASSERT_EQ(connector.reply(frame_of(HelloKind::path)).next, Next::read);
  ASSERT_EQ(advance(acceptor).message.value().kind, HelloKind::path);
  ASSERT_EQ(acceptor.reply(frame_of(HelloKind::ready)).next, Next::done);
  // The link's first bytes follow immediately.
  const std::string words = "the first words of the link";
  const iovec said{const_cast<char*>(words.data()), words.size()};
  const auto from = acceptor.release();
  ASSERT_EQ(from->write({&said, 1}).bytes, words.size());
  ASSERT_EQ(advance(connector).message.value().kind, HelloKind::ready);
  const auto to = connector.release();
  std::string heard;
  ASSERT_TRUE(eventually([&] {
    std::array<char, 100> room{};
    const iovec piece{room.data(), room.size()};
    heard.append(room.data(), to->read({&piece, 1}).bytes);
    return heard.size() >= words.size();
  }));
  EXPECT_EQ(heard, words);
}

INSTANTIATE_TEST_SUITE_P(
    Manners, HandshakeInCrumbs,
    testing::Values(MemoryStream::Manner{}, MemoryStream::Manner{.most_read = 1},
                    MemoryStream::Manner{.most_read = 7, .most_written = 100},
                    MemoryStream::Manner{.most_read = 13, .record_bytes = 1000}));

TEST(HandshakeStream, AStreamThatEndsOrBreaksIsAPeerThatClosed) {
  for (const bool breaks : {false, true}) {
    auto streams = MemoryStream::make_pair({});
    HandshakeStream acceptor(std::move(streams.second), Handshake::acceptor());
    if (breaks)
      streams.first->break_after(0);
    else
      streams.first->end_output();
    const HandshakeStep step = advance(acceptor);
    ASSERT_EQ(step.next, Next::failed);
    EXPECT_EQ(step.error->code, ErrorCode::peer_lost);
  }
}

// A stream with less room than any frame needs.
class HandshakeWithLittleRoom : public testing::TestWithParam<MemoryStream::Manner> {
 protected:
  // Returns the frame that `to` receives at last, while `from` sends pending bytes.
  static HelloKind hears(HandshakeStream& to, HandshakeStream& from) {
    HandshakeStep step;
    EXPECT_TRUE(eventually([&] {
      if (from.has_unsent()) (void)from.advance();
      return (step = to.advance()).next != Next::read;
    }));
    return step.message ? step.message->kind : HelloKind::reject;
  }
};

TEST_P(HandshakeWithLittleRoom, GoesOnWhenThereIsSome) {
  auto streams = MemoryStream::make_pair(GetParam());
  HandshakeStream connector(std::move(streams.first), Handshake::connector());
  HandshakeStream acceptor(std::move(streams.second), Handshake::acceptor());
  ASSERT_EQ(connector.reply(claims()).next, Next::read);
  EXPECT_TRUE(connector.has_unsent());
  ASSERT_EQ(hears(acceptor, connector), HelloKind::hello);
  ASSERT_EQ(acceptor.reply(claims()).next, Next::read);
  ASSERT_EQ(hears(connector, acceptor), HelloKind::hello);
  ASSERT_EQ(connector.reply(frame_of(HelloKind::path)).next, Next::read);
  ASSERT_EQ(hears(acceptor, connector), HelloKind::path);
  EXPECT_EQ(acceptor.reply(frame_of(HelloKind::ready)).next, Next::read) << "not said yet";
  ASSERT_EQ(hears(connector, acceptor), HelloKind::ready);
  EXPECT_EQ(acceptor.advance().next, Next::done);
  EXPECT_FALSE(acceptor.has_unsent());
}

INSTANTIATE_TEST_SUITE_P(Manners, HandshakeWithLittleRoom,
                         testing::Values(MemoryStream::Manner{.room_bytes = 10},
                                         MemoryStream::Manner{.most_written = 3, .room_bytes = 10},
                                         MemoryStream::Manner{.room_bytes = 10, .stalls_every = 2},
                                         MemoryStream::Manner{.room_bytes = 10, .record_bytes = 7},
                                         MemoryStream::Manner{.room_bytes = 10,
                                                              .record_bytes = 1000}));

class Meeting : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> fds{-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    here_.emplace(OwnedFd(fds[0]));
    there_ = OwnedFd(fds[1]);
  }
  void send_with(std::size_t count) { send_descriptors(there_.get(), "a", there_.get(), count); }
  void read_all() {
    std::array<char, 100> room{};
    const iovec piece{room.data(), room.size()};
    while (here_->read({&piece, 1}).bytes != 0) {
    }
  }

  std::optional<RendezvousSocket> here_;
  OwnedFd there_;
};

TEST_F(Meeting, KnowsTheUserAtTheOtherEnd) { EXPECT_EQ(here_->peer().user, geteuid()); }

TEST_F(Meeting, TakesExactlyThreeDescriptors) {
  for (const std::size_t count : {1u, 2u, 4u, 8u}) {
    send_with(count);
    read_all();
    EXPECT_TRUE(fails_with(here_->take_received(), ErrorCode::protocol_violation, "instead of 3"))
        << count;
  }
  send_with(3);
  read_all();
  const auto taken = here_->take_received();
  ASSERT_TRUE(succeeds(taken));
  for (const OwnedFd& fd : *taken) EXPECT_TRUE(fd);
  EXPECT_TRUE(fails_with(here_->take_received(), ErrorCode::protocol_violation)) << "once";
}

TEST_F(Meeting, PassesThemWithTheNextBytesOnly) {
  RendezvousSocket there(std::move(there_));
  const int fd = here_->fd();
  here_->pass({fd, fd, fd});
  char byte = 0;
  const iovec piece{&byte, 1};
  for (int i = 0; i < 2; ++i) ASSERT_EQ(here_->write({&piece, 1}).bytes, 1u);
  ASSERT_EQ(there.read({&piece, 1}).bytes, 1u);
  EXPECT_TRUE(succeeds(there.take_received()));
  ASSERT_EQ(there.read({&piece, 1}).bytes, 1u);
  EXPECT_TRUE(fails_with(there.take_received(), ErrorCode::protocol_violation, "0 descriptors"));
}

}  // namespace
}  // namespace tendon::test
