// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_dials.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/context_core.hpp"
#include "secure/tls_handshake.hpp"
#include "support/expect.hpp"
#include "support/secure/credentials.hpp"
#include "transport/stream/secure_stream.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using ::testing::HasSubstr;
using Streams = std::vector<std::unique_ptr<ByteStream>>;

secure::Secret<kSharedKeyBytes> key_of_lanes() {
  secure::Secret<kSharedKeyBytes> key;
  std::ranges::fill(key.bytes(), std::byte{17});
  return key;
}

/// Dials over socket pairs; the test holds the other ends.
class LanesDialled : public ::testing::Test {
 protected:
  void dial(LaneDialOptions options) {
    options.address = "the listener";
    options.ticket[0] = std::byte{7};
    if (!options.open) options.open = [this] { return open(); };
    dialled_ = std::async(std::launch::async, [this, options = std::move(options)] {
      return LaneDials(*ContextCore::of(context_), options).run();
    });
  }
  /// The connection is open at once, over TLS by `session_key_` if that is set.
  Result<std::unique_ptr<ByteStream>> open() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    std::unique_ptr<ByteStream> here =
        std::make_unique<SocketStream>(OwnedFd(ends[0]), StreamPeer{.kind = PathKind::tcp});
    std::unique_ptr<ByteStream> there =
        std::make_unique<SocketStream>(OwnedFd(ends[1]), StreamPeer{.kind = PathKind::tcp});
    if (is_secure_) {
      here = SecureStream::make(
                 std::move(here),
                 {.role = secure::TlsHandshake::Role::client,
                  .credentials = with_key("fleet", 'a'),
                  .handshake = {.session_id = "s", .session_key = session_key_.bytes()}})
                 .value();
      there = SecureStream::make(std::move(there), {.role = secure::TlsHandshake::Role::server,
                                                    .credentials = with_key("fleet", 'a'),
                                                    .handshake = {.find_session = find_session_}})
                  .value();
    }
    const std::lock_guard lock(mutex_);
    others_.push_back(std::make_unique<HandshakeStream>(std::move(there), Handshake::acceptor()));
    return here;
  }
  [[nodiscard]] std::size_t opened() {
    const std::lock_guard lock(mutex_);
    return others_.size();
  }
  /// The other end of the connection that was opened as number `index`.
  [[nodiscard]] HandshakeStream& other(std::size_t index) {
    EXPECT_TRUE(eventually([&] { return opened() > index; }));
    const std::lock_guard lock(mutex_);
    return *others_.at(index);
  }
  [[nodiscard]] static bool has_input(HandshakeStream& other) {
    pollfd waited{other.stream()->fd(), POLLIN, 0};
    return poll(&waited, 1, 0) == 1;
  }
  /// Returns the request that arrives at the other end, without a reply.
  [[nodiscard]] static HelloMessage hear(HandshakeStream& other) {
    HandshakeStep step;
    EXPECT_TRUE(eventually([&] {
      step = other.advance();
      return step.message || step.next == Next::failed;
    }));
    EXPECT_TRUE(step.message);
    return step.message.value_or(HelloMessage{});
  }
  static void answer(HandshakeStream& other, std::uint8_t ticket = 7) {
    HelloMessage ready;
    ready.kind = HelloKind::ready;
    ready.ticket[0] = std::byte{ticket};
    EXPECT_NE(other.reply(ready).next, Next::failed);
  }
  void admit(std::size_t index) {
    (void)hear(other(index));
    answer(other(index));
  }

  Context context_ = Context::create({.name = "here"}).value();
  bool is_secure_ = false;
  const secure::Secret<kSharedKeyBytes> session_key_ = key_of_lanes();
  secure::FindSession find_session_ = [](std::string_view) { return key_of_lanes(); };
  std::mutex mutex_;
  std::vector<std::unique_ptr<HandshakeStream>> others_;
  std::future<Result<Streams>> dialled_;
};

// The steps are a connection, the hellos of TLS, and the request to join. After each, the other
// ends wait until all sixteen have sent their part, and only then answer. Lanes dialled one after
// another, or with a further round trip, would wait forever.
TEST_F(LanesDialled, SixteenOverTlsTakeThreeRoundTrips) {
  is_secure_ = true;
  dial({.count = 16, .deadline = kPatience});
  ASSERT_TRUE(eventually([&] { return opened() == 16; }));
  for (std::size_t n = 0; n < 16; ++n)
    ASSERT_TRUE(eventually([&] { return has_input(other(n)); })) << n;
  // The request may arrive while the end of TLS is read.
  std::vector<std::optional<HelloMessage>> questions(16);
  for (std::size_t n = 0; n < 16; ++n) {
    ASSERT_TRUE(eventually([&] {
      questions[n] = other(n).advance().message;
      return other(n).stream()->has_answered();
    }));
  }
  std::vector<std::uint32_t> joining;
  for (std::size_t n = 0; n < 16; ++n) {
    if (!questions[n]) questions[n] = hear(other(n));
    EXPECT_EQ(questions[n]->kind, HelloKind::lane);
    EXPECT_EQ(questions[n]->ticket[0], std::byte{7});
    joining.push_back(questions[n]->lane_index);
  }
  for (std::size_t n = 0; n < 16; ++n) answer(other(n));
  const auto lanes = dialled_.get();
  ASSERT_TRUE(succeeds(lanes));
  EXPECT_EQ(lanes->size(), 16u);
  EXPECT_EQ(opened(), 16u);
  std::ranges::sort(joining);
  for (std::uint32_t n = 0; n < 16; ++n) EXPECT_EQ(joining[n], n);
}

TEST_F(LanesDialled, ByOneTicketAfterAnotherTheyWait) {
  dial({.count = 3, .pace = LanePace::one_by_one, .deadline = kPatience});
  for (std::uint8_t n = 0; n < 3; ++n) {
    const HelloMessage question = hear(other(n));
    EXPECT_EQ(opened(), n + 1u);
    EXPECT_EQ(question.lane_index, n);
    EXPECT_EQ(question.ticket[0], std::byte(7 + n));
    answer(other(n), static_cast<std::uint8_t>(8 + n));
  }
  EXPECT_TRUE(succeeds(dialled_.get()));
}

TEST_F(LanesDialled, NoneIsNoWork) {
  dial({.count = 0, .deadline = kPatience});
  EXPECT_TRUE(succeeds(dialled_.get()));
}

// A listener has a limited number of places for one address.
TEST_F(LanesDialled, OneThatIsClosedBeforeItsFirstByteIsDialledAgain) {
  dial({.count = 4, .deadline = kPatience});
  const std::uint32_t closed = hear(other(1)).lane_index;
  for (const std::size_t n : {0u, 2u, 3u}) admit(n);
  { const auto dropped = other(1).release(); }
  const HelloMessage again = hear(other(4));
  EXPECT_EQ(again.lane_index, closed);
  answer(other(4));
  const auto lanes = dialled_.get();
  ASSERT_TRUE(succeeds(lanes));
  EXPECT_EQ(lanes->size(), 4u);
}

TEST_F(LanesDialled, AListenerWithoutPlacesIsBusy) {
  dial({.open = []() -> Result<std::unique_ptr<ByteStream>> {
          std::array<int, 2> ends{};
          EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
                    0);
          const OwnedFd closed(ends[1]);
          return std::unique_ptr<ByteStream>(
              std::make_unique<SocketStream>(OwnedFd(ends[0]), StreamPeer{.kind = PathKind::tcp}));
        },
        .count = 2,
        .deadline = kBriefly});
  EXPECT_TRUE(fails_with(dialled_.get(), ErrorCode::server_busy, "has no place"));
}

TEST_F(LanesDialled, ARefusalEndsThemAll) {
  dial({.count = 3, .deadline = kPatience});
  admit(0);
  (void)hear(other(1));
  (void)other(1).reject({ErrorCode::protocol_violation, "test", "not this one"});
  EXPECT_TRUE(fails_with(dialled_.get(), ErrorCode::protocol_violation, "not this one"));
  std::byte byte{};
  const iovec piece{&byte, 1};
  EXPECT_NE(other(0).stream()->read({&piece, 1}).state, StreamIo::State::later) << "it is closed";
}

TEST_F(LanesDialled, ASessionThatHasEndedIsToldAtOnce) {
  is_secure_ = true;
  find_session_ = [](std::string_view) { return std::nullopt; };
  dial({.count = 1, .deadline = kPatience});
  HandshakeStep step;
  EXPECT_TRUE(eventually([&] { return (step = other(0).advance()).next == Next::failed; }));
  ASSERT_TRUE(step.error);
  EXPECT_EQ(step.error->code, ErrorCode::protocol_violation);
  EXPECT_TRUE(fails_with(dialled_.get(), ErrorCode::server_busy, "the link ended there"));
}

TEST_F(LanesDialled, TheDeadlineNamesWhatIsMissing) {
  dial({.count = 2, .deadline = kBriefly});
  EXPECT_TRUE(fails_with(dialled_.get(), ErrorCode::timeout, "`ready` of lane 0"));
}

TEST_F(LanesDialled, ACallerStopsIt) {
  std::stop_source stop;
  stop.request_stop();
  dial({.count = 2, .deadline = kPatience, .stop = stop.get_token()});
  EXPECT_TRUE(fails_with(dialled_.get(), ErrorCode::cancelled));
}

// Its lanes are silent: nothing else would end the wait before the deadline.
TEST_F(LanesDialled, EndWithTheLinkThatTheyAreOf) {
  std::atomic<bool> has_ended{false};
  dial({.count = 2, .deadline = Deadline::never(), .why_over = [&]() -> std::optional<Error> {
          if (!has_ended) return std::nullopt;
          return Error{ErrorCode::peer_lost, "a test", "the control lane broke"};
        }});
  (void)hear(other(0));
  (void)hear(other(1));
  has_ended = true;
  ContextCore::of(context_)->wake_others();
  EXPECT_TRUE(fails_with(dialled_.get(), ErrorCode::peer_lost, "the control lane broke"));
}

}  // namespace
}  // namespace tendon::test
