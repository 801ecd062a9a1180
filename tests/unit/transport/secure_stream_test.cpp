// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/secure_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "support/child.hpp"
#include "support/memory_stream.hpp"
#include "support/sanitizer.hpp"
#include "support/secure/credentials.hpp"
#include "support/secure/process_memory.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using Role = secure::TlsHandshake::Role;
using State = StreamIo::State;
using ::testing::HasSubstr;

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t n = 0; n < bytes; ++n) made[n] = static_cast<std::byte>(n * 7 + n / 256);
  return made;
}

iovec piece_of(MutableBytes bytes) { return {bytes.data(), bytes.size()}; }

// Each makes one call.
StreamIo write_to(ByteStream& stream, MutableBytes bytes) {
  const iovec piece = piece_of(bytes);
  return stream.write({&piece, 1});
}
StreamIo read_from(ByteStream& stream, MutableBytes room) {
  const iovec piece = piece_of(room);
  return stream.read({&piece, 1});
}

/// Two ends of a secure stream, over a stream that moves as a test requires.
struct SecurePair {
  MemoryStream* client_below = nullptr;
  MemoryStream* server_below = nullptr;
  std::unique_ptr<SecureStream> client;
  std::unique_ptr<SecureStream> server;

  explicit SecurePair(const MemoryStream::Manner& manner = {}, SecureStreamOptions of_client = {},
                      SecureStreamOptions of_server = {}) {
    auto below = MemoryStream::make_pair(manner);
    client_below = below.first.get();
    server_below = below.second.get();
    if (!of_client.credentials) of_client.credentials = fleet_key();
    if (!of_server.credentials) of_server.credentials = fleet_key();
    of_client.role = Role::client;
    of_server.role = Role::server;
    client = SecureStream::make(std::move(below.first), std::move(of_client)).value();
    server = SecureStream::make(std::move(below.second), std::move(of_server)).value();
  }

  /// Runs until both have their session.
  void shake() {
    for (int turn = 0; turn < 10000 && !(client->session() && server->session()); ++turn) {
      (void)client->write({});
      (void)server->write({});
    }
    ASSERT_NE(client->session(), nullptr);
    ASSERT_NE(server->session(), nullptr);
  }
};

/// Moves all of `bytes` from one end to the other, which reads pieces of `piece_bytes`.
void expect_moved(SecureStream& from, SecureStream& to, std::vector<std::byte> bytes,
                  std::size_t piece_bytes) {
  std::vector<std::byte> read(bytes.size());
  std::size_t written = 0;
  std::size_t got = 0;
  for (int idle = 0; got < read.size() && idle < 1000; ++idle) {
    const iovec left = piece_of(MutableBytes(bytes).subspan(written));
    const StreamIo out = from.write({&left, left.iov_len == 0 ? 0u : 1u});
    ASSERT_NE(out.state, State::lost) << from.why_lost().value_or(Error{}).detail;
    written += out.bytes;
    for (;;) {
      const iovec piece =
          piece_of(MutableBytes(read).subspan(got, std::min(piece_bytes, read.size() - got)));
      const StreamIo in = to.read({&piece, 1});
      ASSERT_NE(in.state, State::lost) << to.why_lost().value_or(Error{}).detail;
      if (in.state != State::moved) break;
      got += in.bytes;
      idle = 0;
      if (got == read.size()) {
        EXPECT_EQ(in.inside_bytes, 0u);
        break;
      }
    }
  }
  EXPECT_EQ(got, read.size());
  EXPECT_TRUE(std::ranges::equal(read, bytes));
}

TEST(SecureStream, MovesBytesBothWays) {
  SecurePair pair;
  pair.shake();
  expect_moved(*pair.client, *pair.server, counted(1), 64);
  expect_moved(*pair.server, *pair.client, counted(3 << 20), 1 << 20);
  expect_moved(*pair.client, *pair.server, counted(3 << 20), 64);
  EXPECT_EQ(pair.client->session()->identity, "key:fleet");
  EXPECT_EQ(pair.server->session()->identity, "key:fleet");
}

TEST(SecureStream, BeginsByItself) {
  SecurePair pair;
  expect_moved(*pair.client, *pair.server, counted(1000), 1000);
}

TEST(SecureStream, OverAStreamThatStallsAndMovesLittle) {
  SecurePair pair({.most_read = 97, .most_written = 113, .room_bytes = 500, .stalls_every = 3});
  expect_moved(*pair.client, *pair.server, counted(100000), 4096);
  expect_moved(*pair.server, *pair.client, counted(100000), 17);
}

// Two layers of records, as a cable adds its own.
TEST(SecureStream, OverAStreamThatKeepsBytesInside) {
  SecurePair pair({.room_bytes = 3000, .record_bytes = 700});
  expect_moved(*pair.client, *pair.server, counted(100000), 1000);
  expect_moved(*pair.server, *pair.client, counted(100000), 1000);
}

/// Counts the reads of the stream below it.
class CountedReads final : public ByteStream {
 public:
  CountedReads(std::unique_ptr<ByteStream> below, std::size_t& count)
      : below_(std::move(below)), count_(count) {}
  StreamIo read(std::span<const iovec> pieces) noexcept override {
    ++count_;
    return below_->read(pieces);
  }
  StreamIo write(std::span<const iovec> pieces) noexcept override { return below_->write(pieces); }
  void end_output() noexcept override { below_->end_output(); }
  int fd() const noexcept override { return below_->fd(); }
  const StreamPeer& peer() const noexcept override { return below_->peer(); }

 private:
  std::unique_ptr<ByteStream> below_;
  std::size_t& count_;
};

TEST(SecureStream, ASmallMessageIsOneReadOfTheStreamBelow) {
  auto [near, far] = MemoryStream::make_pair({});
  std::size_t reads = 0;
  const auto client =
      SecureStream::make(std::move(near), {.role = Role::client, .credentials = fleet_key()})
          .value();
  const auto server = SecureStream::make(std::make_unique<CountedReads>(std::move(far), reads),
                                         {.role = Role::server, .credentials = fleet_key()})
                          .value();
  expect_moved(*client, *server, counted(1), 64);
  auto bytes = counted(64);
  const iovec message = piece_of(bytes);
  ASSERT_EQ(client->write({&message, 1}).bytes, 64u);
  std::array<std::byte, 4096> room;
  const iovec piece = piece_of(room);
  reads = 0;
  EXPECT_EQ(server->read({&piece, 1}).bytes, 64u);
  EXPECT_EQ(reads, 1u) << "it was drained, as its short read said";
}

TEST(SecureStream, SaysWhatIsLeftInside) {
  SecurePair pair;
  pair.shake();
  auto bytes = counted(1000);
  EXPECT_EQ(write_to(*pair.client, bytes).bytes, 1000u);
  std::array<std::byte, 600> some;
  EXPECT_EQ(read_from(*pair.server, some).inside_bytes, 400u);
  // A further record that was not opened yet counts as well.
  EXPECT_EQ(write_to(*pair.client, bytes).bytes, 1000u);
  EXPECT_EQ(read_from(*pair.server, some).bytes, 600u);
  EXPECT_NE(read_from(*pair.server, some).inside_bytes, 0u);
  EXPECT_EQ(read_from(*pair.server, some).bytes, 200u);
  EXPECT_EQ(read_from(*pair.server, some).state, State::later);
}

TEST(SecureStream, GathersAndScattersManyPieces) {
  SecurePair pair;
  pair.shake();
  auto bytes = counted(40 * 1001);
  std::vector<iovec> out;
  std::vector<iovec> in;
  std::vector<std::byte> read(bytes.size());
  for (std::size_t n = 0; n < 40; ++n) {
    out.push_back(piece_of(MutableBytes(bytes).subspan(n * 1001, 1001)));
    out.push_back({nullptr, 0});
    in.push_back(piece_of(MutableBytes(read).subspan(n * 1001, n % 2 == 0 ? 1000 : 1)));
    in.push_back(piece_of(
        MutableBytes(read).subspan(n * 1001 + (n % 2 == 0 ? 1000 : 1), n % 2 == 0 ? 1 : 1000)));
  }
  EXPECT_EQ(pair.client->write(out).bytes, bytes.size());
  EXPECT_EQ(pair.server->read(in).bytes, bytes.size());
  EXPECT_EQ(read, bytes);
}

TEST(SecureStream, EndsInOrderOneWayAtATime) {
  SecurePair pair;
  pair.shake();
  auto bytes = counted(10);
  std::array<std::byte, 100> room;
  EXPECT_EQ(write_to(*pair.client, bytes).bytes, 10u);
  pair.client->end_output();
  EXPECT_EQ(read_from(*pair.server, room).bytes, 10u);
  EXPECT_EQ(read_from(*pair.server, room).state, State::ended);
  EXPECT_EQ(read_from(*pair.server, room).state, State::ended);
  EXPECT_EQ(write_to(*pair.server, bytes).bytes, 10u);
  EXPECT_EQ(read_from(*pair.client, room).bytes, 10u);
}

TEST(SecureStream, CutItIsNoEnd) {
  SecurePair pair;
  pair.shake();
  auto bytes = counted(10);
  std::array<std::byte, 100> room;
  EXPECT_EQ(write_to(*pair.client, bytes).bytes, 10u);
  pair.client_below->end_output();  // as somebody on the path may do
  EXPECT_EQ(read_from(*pair.server, room).bytes, 10u);
  EXPECT_EQ(read_from(*pair.server, room).state, State::lost);
  ASSERT_TRUE(pair.server->why_lost());
  EXPECT_EQ(pair.server->why_lost()->code, ErrorCode::peer_lost);
}

TEST(SecureStream, CutWithinItsHandshake) {
  SecurePair pair;
  (void)pair.client->write({});
  pair.client_below->end_output();
  std::array<std::byte, 100> room;
  EXPECT_EQ(read_from(*pair.server, room).state, State::lost);
  ASSERT_TRUE(pair.server->why_lost());
  EXPECT_EQ(pair.server->why_lost()->code, ErrorCode::peer_lost);
}

TEST(SecureStream, AWrongKeyIsAnErrorOnBothSides) {
  SecurePair pair({}, {.credentials = fleet_key('b')});
  (void)pair.client->write({});
  (void)pair.server->write({});
  (void)pair.client->write({});
  for (SecureStream* end : {pair.client.get(), pair.server.get()}) {
    EXPECT_EQ(end->write({}).state, State::lost);
    ASSERT_TRUE(end->why_lost());
    EXPECT_EQ(end->why_lost()->code, ErrorCode::authentication_failed);
    EXPECT_EQ(end->session(), nullptr);
  }
}

TEST(SecureStream, PlaintextIsRefused) {
  auto below = MemoryStream::make_pair({});
  auto server = SecureStream::make(std::move(below.second),
                                   {.role = Role::server, .credentials = fleet_key()})
                    .value();
  auto hello = counted(64);
  (void)write_to(*below.first, hello);
  std::array<std::byte, 100> room;
  EXPECT_EQ(read_from(*server, room).state, State::lost);
  ASSERT_TRUE(server->why_lost());
  EXPECT_EQ(server->why_lost()->code, ErrorCode::protocol_violation);
  const StreamIo answer = read_from(*below.first, room);
  EXPECT_EQ(answer.bytes, 7u) << "an alert";
}

// A receiver whose credit no longer reaches the peer still reads all that the peer had sent.
TEST(SecureStream, AWriteThatFailsLeavesWhatHasArrived) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  auto client = SecureStream::make(std::make_unique<SocketStream>(OwnedFd(ends[0])),
                                   {.role = Role::client, .credentials = fleet_key()})
                    .value();
  auto server = SecureStream::make(std::make_unique<SocketStream>(OwnedFd(ends[1])),
                                   {.role = Role::server, .credentials = fleet_key()})
                    .value();
  while (client->session() == nullptr || server->session() == nullptr) {
    ASSERT_NE(client->write({}).state, State::lost);
    ASSERT_NE(server->write({}).state, State::lost);
  }
  auto bytes = counted(100);
  EXPECT_EQ(write_to(*client, bytes).bytes, 100u);
  client->end_output();
  client.reset();
  EXPECT_EQ(write_to(*server, bytes).state, State::lost);
  std::array<std::byte, 200> room;
  EXPECT_EQ(read_from(*server, room).bytes, 100u);
  EXPECT_EQ(read_from(*server, room).state, State::ended);
}

TEST(SecureStream, KeysChangeUnderWay) {
  SecureStreamOptions often;
  often.limits.records = 2;
  SecurePair pair({}, often);
  pair.shake();
  expect_moved(*pair.client, *pair.server, counted(1 << 20), 1 << 16);
  expect_moved(*pair.server, *pair.client, counted(1 << 20), 1 << 16);
}

// The socket belongs to the parent, whose records a child would break, and the child's keys are
// zeros.
TEST(SecureStream, AChildReadsAndWritesNothing) {
  SecurePair pair({.room_bytes = 500});
  pair.shake();
  auto bytes = counted(10'000);
  const iovec piece = piece_of(bytes);
  const std::size_t written = pair.client->write({&piece, 1}).bytes;
  const int status = run_in_child([&] {
    // Makes room for the client's pending records, in the child's copy of the streams below.
    std::array<std::byte, 1000> memory{};
    const iovec room = piece_of(memory);
    while (pair.server_below->read({&room, 1}).state == State::moved) {
    }
    for (SecureStream* const end : {pair.client.get(), pair.server.get()}) {
      if (end->write({&piece, 1}).state != State::lost) return 1;
      if (end->read({&room, 1}).state != State::lost) return 2;
      end->end_output();
      if (!end->why_lost() || end->why_lost()->code != ErrorCode::forked) return 3;
    }
    return pair.server_below->read({&room, 1}).state == State::later ? 0 : 4;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  // The parent continues.
  std::vector<std::byte> read(written);
  for (std::size_t got = 0; got < written;) {
    (void)pair.client->write({});
    const iovec left = piece_of(MutableBytes(read).subspan(got));
    const StreamIo io = pair.server->read({&left, 1});
    ASSERT_NE(io.state, State::lost);
    got += io.bytes;
  }
  EXPECT_TRUE(std::ranges::equal(read, Bytes(bytes).first(written)));
}

TEST(SecureStream, WipesTheKeysOfItsSession) {
  SecurePair pair;
  pair.shake();
  std::vector<Bytes> keys;
  for (const SecureStream* const end : {pair.client.get(), pair.server.get()}) {
    keys.emplace_back(end->session()->lane_key.bytes());
    keys.emplace_back(end->session()->host_key.bytes());
  }
  const auto is_zero = [](Bytes bytes) {
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
  };
  EXPECT_TRUE(std::ranges::none_of(keys, is_zero));
  pair.client.reset();
  pair.server.reset();
  EXPECT_TRUE(std::ranges::all_of(keys, is_zero));
}

// A stream that another object owns.
class LentStream final : public ByteStream {
 public:
  explicit LentStream(ByteStream& stream) : stream_(stream) {}
  StreamIo read(std::span<const iovec> pieces) noexcept override { return stream_.read(pieces); }
  StreamIo write(std::span<const iovec> pieces) noexcept override { return stream_.write(pieces); }
  void end_output() noexcept override { stream_.end_output(); }
  int fd() const noexcept override { return stream_.fd(); }
  const StreamPeer& peer() const noexcept override { return stream_.peer(); }

 private:
  ByteStream& stream_;
};

class SecureStreamMemory : public ::testing::TestWithParam<secure::SealerKind> {};

// The limit is in docs/limits.md.
TEST_P(SecureStreamMemory, IsLittleOnceTheHandshakeIsDone) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer brings a malloc of its own";
  if (!secure::make_sealer(GetParam(), {})) GTEST_SKIP() << "this build does not have it";
  constexpr std::size_t kPairs = 100;
  // Makes the size of the send buffer known.
  constexpr std::size_t kWritten = 4 * secure::kMaxContentBytes;
  constexpr std::size_t kSendBuffer =
      secure::RecordLayer::kLeastRoomBytes + kWritten + 5 * secure::kRecordOverheadBytes;
  const auto credentials = fleet_key();
  std::vector<MemoryStream::Pair> below;
  std::vector<std::unique_ptr<SecureStream>> ends(2 * kPairs);
  for (std::size_t n = 0; n < kPairs; ++n) below.push_back(MemoryStream::make_pair({}));
  const auto fill_pair = [&](std::size_t n) {
    const auto make = [&](ByteStream& stream, Role role) {
      return SecureStream::make(std::make_unique<LentStream>(stream),
                                {.role = role, .credentials = credentials, .sealer = GetParam()})
          .value();
    };
    ends[2 * n] = make(*below[n].first, Role::client);
    ends[2 * n + 1] = make(*below[n].second, Role::server);
    for (int turn = 0; turn < 20; ++turn) {
      (void)ends[2 * n]->write({});
      (void)ends[2 * n + 1]->write({});
    }
    ASSERT_NE(ends[2 * n]->session(), nullptr);
    ASSERT_NE(ends[2 * n + 1]->session(), nullptr);
    expect_moved(*ends[2 * n], *ends[2 * n + 1], counted(kWritten), kWritten);
    expect_moved(*ends[2 * n + 1], *ends[2 * n], counted(kWritten), kWritten);
  };
  for (std::size_t n = 0; n < kPairs; ++n) fill_pair(n);
  const std::size_t secret_before = secret_memory_bytes();
  ends.clear();
  const auto heap_bytes = [] {
    const auto facts = mallinfo2();
    return facts.uordblks + facts.hblkhd;
  };
  // The grown streams below stay, and so do objects that libcrypto makes once.
  const std::size_t heap_before = heap_bytes();
  ends.resize(2 * kPairs);
  for (std::size_t n = 0; n < kPairs; ++n) fill_pair(n);
  const std::size_t heap = (heap_bytes() - heap_before) / (2 * kPairs) - kSendBuffer;
  const std::size_t secret = secret_before / (2 * kPairs);
  EXPECT_EQ(secret_memory_bytes(), secret_before) << "what was given back was not used again";
  RecordProperty("heap_bytes", std::to_string(heap));
  RecordProperty("secret_bytes", std::to_string(secret));
  EXPECT_LE(heap + secret, 4096U) << heap << " bytes of the heap, and of secret memory " << secret;
}

INSTANTIATE_TEST_SUITE_P(Sealers, SecureStreamMemory,
                         ::testing::Values(secure::SealerKind::openssl,
                                           secure::SealerKind::ipsec_mb));
// --- the switch to a renewed session

std::vector<std::byte> renewal_key(char fill) {
  return std::vector<std::byte>(secure::kTrafficSecretBytes, static_cast<std::byte>(fill));
}

TEST(SecureStream, GoesOverToRenewedKeysOneDirectionAtATime) {
  SecurePair pair;
  pair.shake();
  for (const char fill : {'1', '2'}) {
    ASSERT_TRUE(pair.client->expect_switch(renewal_key(fill)));
    ASSERT_TRUE(pair.server->expect_switch(renewal_key(fill)));
    EXPECT_TRUE(pair.server->expects_switch());
    expect_moved(*pair.client, *pair.server, counted(1000), 64);  // still under the old keys
    pair.client->switch_output();
    expect_moved(*pair.client, *pair.server, counted(1 << 20), 1 << 16);
    EXPECT_FALSE(pair.server->expects_switch());
    EXPECT_TRUE(pair.client->expects_switch());
    expect_moved(*pair.server, *pair.client, counted(1000), 64);
    pair.server->switch_output();
    expect_moved(*pair.server, *pair.client, counted(1 << 20), 1 << 16);
    EXPECT_FALSE(pair.client->expects_switch());
  }
}

// One call returns the bytes on both sides of the switch, and no byte of the switch.
TEST(SecureStream, ASwitchIsNoByteOfTheStream) {
  SecurePair pair;
  pair.shake();
  ASSERT_TRUE(pair.server->expect_switch(renewal_key('1')));
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('1')));
  auto bytes = counted(100);
  const iovec piece = piece_of(bytes);
  EXPECT_EQ(pair.client->write({&piece, 1}).bytes, 100u);
  pair.client->switch_output();
  EXPECT_EQ(pair.client->write({&piece, 1}).bytes, 100u);
  std::array<std::byte, 300> read;
  const iovec room = piece_of(read);
  EXPECT_EQ(pair.server->read({&room, 1}).bytes, 200u);
  EXPECT_EQ(pair.server->read({&room, 1}).state, State::later);
}

TEST(SecureStream, EndsAfterASwitch) {
  SecurePair pair;
  pair.shake();
  ASSERT_TRUE(pair.server->expect_switch(renewal_key('1')));
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('1')));
  pair.client->switch_output();
  pair.client->end_output();
  std::array<std::byte, 100> read;
  const iovec room = piece_of(read);
  EXPECT_EQ(pair.server->read({&room, 1}).state, State::ended);
}

// Without an end under the new keys, an attacker may have cut the stream.
TEST(SecureStream, CutBehindASwitchIsNoEnd) {
  SecurePair pair;
  pair.shake();
  ASSERT_TRUE(pair.server->expect_switch(renewal_key('1')));
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('1')));
  pair.client->switch_output();
  pair.client_below->end_output();
  std::array<std::byte, 100> read;
  const iovec room = piece_of(read);
  EXPECT_EQ(pair.server->read({&room, 1}).state, State::lost);
  ASSERT_TRUE(pair.server->why_lost());
  EXPECT_EQ(pair.server->why_lost()->code, ErrorCode::peer_lost);
}

TEST(SecureStream, ASwitchThatNobodyExpectsIsTheEnd) {
  SecurePair pair;
  pair.shake();
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('1')));
  pair.client->switch_output();
  std::array<std::byte, 100> read;
  const iovec room = piece_of(read);
  EXPECT_EQ(pair.server->read({&room, 1}).state, State::ended);
}

TEST(SecureStream, ASwitchToOtherKeysIsRefused) {
  SecurePair pair;
  pair.shake();
  ASSERT_TRUE(pair.server->expect_switch(renewal_key('1')));
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('2')));
  pair.client->switch_output();
  auto bytes = counted(100);
  const iovec piece = piece_of(bytes);
  EXPECT_EQ(pair.client->write({&piece, 1}).bytes, 100u);
  std::array<std::byte, 200> read;
  const iovec room = piece_of(read);
  EXPECT_EQ(pair.server->read({&room, 1}).state, State::lost);
  ASSERT_TRUE(pair.server->why_lost());
  EXPECT_EQ(pair.server->why_lost()->code, ErrorCode::protocol_violation);
}

TEST(SecureStream, OutputThatHasEndedGoesOverToNothing) {
  SecurePair pair;
  pair.shake();
  pair.client->end_output();
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('1')));
  pair.client->switch_output();
  std::array<std::byte, 100> read;
  const iovec room = piece_of(read);
  EXPECT_EQ(pair.server->read({&room, 1}).state, State::ended);
  EXPECT_NE(pair.client->write({}).state, State::lost);
}

// A waiting switch is written without a further byte of the program.
TEST(SecureStream, ASwitchWaitsForRoom) {
  SecurePair pair({.most_read = 97, .most_written = 5, .room_bytes = 40});
  pair.shake();
  ASSERT_TRUE(pair.server->expect_switch(renewal_key('1')));
  ASSERT_TRUE(pair.client->expect_switch(renewal_key('1')));
  for (int n = 0; n < 30 && !pair.client->wants_room(); ++n) {
    auto byte = counted(1);
    const iovec piece = piece_of(byte);
    (void)pair.client->write({&piece, 1});
  }
  pair.client->switch_output();
  EXPECT_TRUE(pair.client->wants_room());
  std::array<std::byte, 100> read;
  const iovec room = piece_of(read);
  for (int n = 0; n < 1000 && pair.server->expects_switch(); ++n) {
    (void)pair.server->read({&room, 1});
    (void)pair.client->write({});
  }
  EXPECT_FALSE(pair.server->expects_switch());
  expect_moved(*pair.client, *pair.server, counted(1000), 64);
}

}  // namespace
}  // namespace tendon::test
