// SPDX-License-Identifier: Apache-2.0 TLS over the two byte streams of a cable, frame by frame and
// in one thread. The tests check how far it continues before the reader grants more, and the effect
// of a cut, an end or a foreign record at each byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/ways/cables.hpp"
#include "support/expect.hpp"
#include "support/secure/credentials.hpp"
#include "transport/stream/secure_stream.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using Role = secure::TlsHandshake::Role;
using IoState = StreamIo::State;
using Verdict = Cable::Verdict;

std::vector<std::byte> bytes_saying(const std::string& text) {
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// One end: TLS, the stream below it, and the cable behind that.
struct TlsEnd {
  std::unique_ptr<SecureStream> stream;
  OwnedFd far;
  Cable cable;
  std::uint64_t sent_bytes = 0;

  static TlsEnd make(Role role, const std::shared_ptr<const secure::Credentials>& credentials) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    auto near =
        std::make_unique<SocketStream>(OwnedFd(ends[0]), StreamPeer{.kind = PathKind::routed});
    return {
        .stream =
            SecureStream::make(std::move(near), {.role = role, .credentials = credentials}).value(),
        .far = OwnedFd(ends[1]),
        .cable = Cable(Nonce128{std::byte{7}},
                       role == Role::client ? CableEnd::asker : CableEnd::answerer,
                       CableSeal::make(CableKey{}).value(), Cables::first_grant(Lane::control))};
  }
  [[nodiscard]] StreamIo say(const std::string& text) const {
    auto bytes = bytes_saying(text);
    const iovec piece{bytes.data(), bytes.size()};
    return stream->write({&piece, 1});
  }
  /// Reads to the end of what has arrived, and appends it to `read`.
  [[nodiscard]] StreamIo read_all(std::string& read) const {
    for (;;) {
      std::array<std::byte, 1000> room;
      const iovec piece{room.data(), room.size()};
      const StreamIo io = stream->read({&piece, 1});
      if (io.state != IoState::moved) return io;
      read += as_text(Bytes(room).first(io.bytes));
    }
  }
  /// Succeeds if the stream is `lost` with this code.
  [[nodiscard]] testing::AssertionResult is_lost(ErrorCode code) const {
    std::string read;
    const StreamIo io = read_all(read);
    if (io.state != IoState::lost) return testing::AssertionFailure() << "it is not lost";
    const Error why = stream->why_lost().value_or(system_error("test", "reading", io.error));
    if (why.code == code) return testing::AssertionSuccess();
    return testing::AssertionFailure() << to_string(why.code) << ": " << why.detail;
  }
};

/// How a cable stops, behind a number of bytes of one direction.
enum class Stop : std::uint8_t {
  cut,  ///< as a lost router does, or a Context that drops it
  end,  ///< as an attacker on the way does that knows the cable's key
};

/// Two ends on one cable, and the pump between them.
class TlsOnCable {
 public:
  enum class Grants : std::uint8_t { as_taken, none };

  explicit TlsOnCable(const std::shared_ptr<const secure::Credentials>& credentials = fleet_key(),
                      Grants grants = Grants::as_taken)
      : client(TlsEnd::make(Role::client, credentials)),
        server(TlsEnd::make(Role::server, credentials)),
        grants_(grants) {}

  TlsEnd client;
  TlsEnd server;

  void stop_after(TlsEnd& from, std::uint64_t bytes, Stop how) {
    stopping_ = &from;
    stops_after_ = bytes;
    how_ = how;
  }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] bool is_open() const {
    return client.stream->session() != nullptr && server.stream->session() != nullptr;
  }
  /// Moves bytes until none is left to move.
  void run() {
    for (bool moved = true; moved && !stopped_;) {
      (void)client.stream->write({});
      (void)server.stream->write({});
      moved = pump(client, server);
      if (!stopped_) moved |= pump(server, client);
    }
  }
  /// Takes the bytes that `from` has sent and not put: none of them arrives.
  [[nodiscard]] static std::vector<std::byte> take(const TlsEnd& from) {
    std::vector<std::byte> bytes(kMaxCablePayloadBytes);
    const ssize_t received = recv(from.far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
    return bytes;
  }
  /// Delivers a frame with these bytes that the cable accepts as its own.
  void deliver(TlsEnd& from, TlsEnd& to, Bytes payload) const {
    const MutableBytes room = from.cable.room().value();
    ASSERT_GE(room.size(), payload.size());
    std::ranges::copy(payload, room.begin());
    const Storage frame = from.cable.data(payload.size()).value();
    from.sent_bytes += payload.size();
    const CableFrame read = read_cable_frame(frame.bytes()).value();
    ASSERT_EQ(to.cable.hear(read), Verdict::taken);
    ASSERT_EQ(send(to.far.get(), read.payload.data(), read.payload.size(), MSG_NOSIGNAL),
              std::ssize(read.payload));
    if (grants_ == Grants::none) return;
    to.cable.note_taken(payload.size());
    to.cable.grant(Cables::first_grant(Lane::control));
    if (!to.cable.owes_word()) return;
    ASSERT_EQ(from.cable.hear(read_cable_frame(to.cable.word().value().bytes()).value()),
              Verdict::taken);
  }

 private:
  bool pump(TlsEnd& from, TlsEnd& to) {
    std::size_t most = from.cable.may_send();
    if (stopping_ == &from) most = std::min<std::uint64_t>(most, stops_after_ - from.sent_bytes);
    std::vector<std::byte> bytes(most);
    const ssize_t received =
        most == 0 ? 0 : recv(from.far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) deliver(from, to, Bytes(bytes).first(static_cast<std::size_t>(received)));
    if (stopping_ == &from && from.sent_bytes == stops_after_) stop(to);
    return received > 0;
  }
  // Stops as Cables does.
  void stop(TlsEnd& to) {
    stopped_ = true;
    if (how_ == Stop::end) {
      ASSERT_EQ(to.cable.hear(read_cable_frame(stopping_->cable.end().value().bytes()).value()),
                Verdict::taken);
      (void)shutdown(to.far.get(), SHUT_WR);
      return;
    }
    client.far.reset();
    server.far.reset();
  }

  const Grants grants_;
  TlsEnd* stopping_ = nullptr;
  std::uint64_t stops_after_ = 0;
  Stop how_ = Stop::cut;
  bool stopped_ = false;
};

void expect_talk(TlsOnCable& on) {
  for (const auto& [from, to] : {std::pair(&on.client, &on.server), {&on.server, &on.client}}) {
    ASSERT_EQ(from->say("a word").state, IoState::moved);
    on.run();
    std::string read;
    EXPECT_EQ(to->read_all(read).state, IoState::later);
    EXPECT_EQ(read, "a word");
  }
}

// ---- the first window

TEST(TlsOverACable, AKeyNeedsNoWordOfTheReader) {
  TlsOnCable on(fleet_key(), TlsOnCable::Grants::none);
  on.run();
  ASSERT_TRUE(on.is_open());
  expect_talk(on);
  EXPECT_LT(on.client.sent_bytes, 1024u);
  EXPECT_LT(on.server.sent_bytes, 1024u);
}

TEST(TlsOverACable, ChainsOfThreeNeedNoWordOfTheReader) {
  TlsOnCable on(chain_of_three(), TlsOnCable::Grants::none);
  on.run();
  ASSERT_TRUE(on.is_open());
  expect_talk(on);
  EXPECT_GT(on.client.sent_bytes, 1024u);
  EXPECT_LE(on.client.sent_bytes, 8192u);
  EXPECT_LE(on.server.sent_bytes, 8192u);
}

// One grant of the reader is enough if certificates are larger than the window.
TEST(TlsOverACable, FlightsBeyondTheWindowGoOnWithIt) {
  CertificateText large;
  for (int n = 0; n < 400; ++n) large.names += ", DNS:robot-" + std::to_string(n) + ".example";
  TlsOnCable stuck(chain_of_three(large), TlsOnCable::Grants::none);
  stuck.run();
  EXPECT_FALSE(stuck.is_open());
  TlsOnCable on(chain_of_three(large));
  on.run();
  ASSERT_TRUE(on.is_open()) << on.client.stream->why_lost().value_or(Error{}).detail;
  EXPECT_GT(on.client.sent_bytes, 8192u);
  EXPECT_GT(on.server.sent_bytes, 8192u);
  expect_talk(on);
}

// A record is twice as large as the window, and neither end waits for the other.
TEST(TlsOverACable, RecordsBeyondTheWindowArriveBothWaysAtOnce) {
  TlsOnCable on;
  on.run();
  ASSERT_TRUE(on.is_open());
  const std::string much(std::size_t{100'000}, 'm');
  std::size_t client_said = 0;
  std::size_t server_said = 0;
  std::string at_client;
  std::string at_server;
  for (int turn = 0; turn < 1000 && at_client.size() + at_server.size() < 2 * much.size(); ++turn) {
    client_said += on.client.say(much.substr(client_said)).bytes;
    server_said += on.server.say(much.substr(server_said)).bytes;
    on.run();
    ASSERT_EQ(on.client.read_all(at_client).state, IoState::later);
    ASSERT_EQ(on.server.read_all(at_server).state, IoState::later);
  }
  EXPECT_TRUE(at_client == much);
  EXPECT_TRUE(at_server == much);
}

// ---- a cable that stops

/// Stops behind each `step`th byte that `direction` sends in a handshake and a record behind it.
void expect_lost_at_each_byte(TlsEnd TlsOnCable::*direction, Stop how, std::uint64_t step) {
  const auto talk = [](TlsOnCable& on) {
    on.run();
    if (!on.is_open() || on.stopped()) return;
    EXPECT_EQ(on.client.say("of the client").state, IoState::moved);
    EXPECT_EQ(on.server.say("of the server").state, IoState::moved);
    on.run();
  };
  const auto key = fleet_key();
  TlsOnCable whole(key);
  talk(whole);
  const std::uint64_t bytes = (whole.*direction).sent_bytes;
  ASSERT_GT(bytes, 200u);
  for (std::uint64_t n = 0; n < bytes; n += step) {
    TlsOnCable on(key);
    TlsEnd& from = on.*direction;
    on.stop_after(from, n, how);
    talk(on);
    ASSERT_TRUE(on.stopped()) << n;
    TlsEnd& to = &from == &on.client ? on.server : on.client;
    ASSERT_TRUE(to.is_lost(ErrorCode::peer_lost)) << "behind byte " << n;
    if (how == Stop::cut) {
      ASSERT_TRUE(from.is_lost(ErrorCode::peer_lost)) << "of the sender, behind byte " << n;
    }
  }
}

TEST(TlsOverACable, CutBehindEachByteOfTheAskerItIsLost) {
  expect_lost_at_each_byte(&TlsOnCable::client, Stop::cut, 1);
}

TEST(TlsOverACable, CutBehindEachByteOfTheAnswererItIsLost) {
  expect_lost_at_each_byte(&TlsOnCable::server, Stop::cut, 1);
}

TEST(TlsOverACable, AnEndOfTheCableIsNoEndOfTheStream) {
  expect_lost_at_each_byte(&TlsOnCable::client, Stop::end, 7);
  expect_lost_at_each_byte(&TlsOnCable::server, Stop::end, 7);
}

TEST(TlsOverACable, ItsOwnEndIsOne) {
  TlsOnCable on;
  on.run();
  ASSERT_EQ(on.client.say("the last words").state, IoState::moved);
  on.client.stream->end_output();
  on.run();
  std::string read;
  EXPECT_EQ(on.server.read_all(read).state, IoState::ended);
  EXPECT_EQ(read, "the last words");
}

// ---- records of an attacker who knows the key of the cable, as a router does

class ForeignRecords : public testing::Test {
 protected:
  void SetUp() override {
    for (TlsOnCable* on : {&here_, &there_}) {
      on->run();
      ASSERT_TRUE(on->is_open());
    }
  }
  /// Returns the record that `from` sends, not delivered yet.
  [[nodiscard]] static std::vector<std::byte> record(const TlsEnd& from, const std::string& text) {
    EXPECT_EQ(from.say(text).state, IoState::moved);
    return TlsOnCable::take(from);
  }
  void expect_refused() {
    std::string read;
    (void)here_.server.read_all(read);
    EXPECT_EQ(read, "");
    EXPECT_TRUE(here_.server.is_lost(ErrorCode::protocol_violation));
  }

  TlsOnCable here_;
  TlsOnCable there_;
};

TEST_F(ForeignRecords, OfAnotherCableAreRefused) {
  here_.deliver(here_.client, here_.server, record(there_.client, "from there"));
  expect_refused();
}

TEST_F(ForeignRecords, ThatArriveAgainAreRefused) {
  const auto once = record(here_.client, "once");
  here_.deliver(here_.client, here_.server, once);
  std::string read;
  EXPECT_EQ(here_.server.read_all(read).state, IoState::later);
  EXPECT_EQ(read, "once");
  here_.deliver(here_.client, here_.server, once);
  expect_refused();
}

TEST_F(ForeignRecords, ThatOvertakeAreRefused) {
  const auto first = record(here_.client, "first");
  here_.deliver(here_.client, here_.server, record(here_.client, "second"));
  expect_refused();
}

TEST_F(ForeignRecords, ThatReturnToTheirSenderAreRefused) {
  here_.deliver(here_.client, here_.server, record(here_.server, "of the server"));
  expect_refused();
}

TEST_F(ForeignRecords, WithABitOfAnotherValueAreRefused) {
  auto changed = record(here_.client, "changed");
  changed.back() ^= std::byte{1};
  here_.deliver(here_.client, here_.server, changed);
  expect_refused();
}

}  // namespace
}  // namespace tendon::test
