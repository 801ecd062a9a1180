// SPDX-License-Identifier: Apache-2.0
// The test plays a peer of protocol 1.0 and one that knows windows in `open`: docs/protocol.md,
// "Opening" and "Credits".
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "channel/open.hpp"
#include "session/features.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::MessageKind;

class WindowInOpen : public testing::Test {
 protected:
  Context context_ = Context::create({.name = "context"}).value();
};

// The opening peer says how much it leaves untaken.
TEST_F(WindowInOpen, ASenderKeepsToTheWindowThatThePeerSaid) {
  Listener listener =
      Listener::bind(context_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  RawClient client(listener.address(), claims());
  ASSERT_TRUE(is_ready(client.choose()));
  const auto ticket = client.ticket();
  client.open(detail::opening_of(ticket, detail::Window::said(4, 1 << 20)).descriptor(1), ticket);
  Pipe pipe = listener.accept(kPatience).value();
  for (std::int64_t n = 0; n < 4; ++n) ASSERT_TRUE(succeeds(pipe.send(numbered(n), kPatience)));
  EXPECT_TRUE(fails_with(pipe.send(numbered(4), 0s), ErrorCode::timeout, "of at most 4 messages"));
  client.post({.kind = MessageKind::credit, .pipe = 1, .sequence = 2, .payload_bytes = 16}, {});
  for (std::int64_t n = 4; n < 6; ++n) ASSERT_TRUE(succeeds(pipe.send(numbered(n), kPatience)));
  EXPECT_TRUE(fails_with(pipe.send(numbered(6), 0s), ErrorCode::timeout));
}

TEST_F(WindowInOpen, APeerThatSaysNothingGetsTheConstants) {
  Listener listener =
      Listener::bind(context_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  RawClient client(listener.address(), claims());
  ASSERT_TRUE(is_ready(client.choose()));
  client.open(1, client.ticket());
  Pipe pipe = listener.accept(kPatience).value();
  for (std::uint32_t n = 0; n < kPipeWindowMessages; ++n)
    ASSERT_TRUE(succeeds(pipe.send(numbered(n), kPatience)));
  EXPECT_TRUE(
      fails_with(pipe.send(numbered(0), 0s), ErrorCode::timeout, "of at most 256 messages"));
}

TEST_F(WindowInOpen, HalfAWindowIsRefused) {
  Listener listener =
      Listener::bind(context_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  RawClient client(listener.address(), claims());
  ASSERT_TRUE(is_ready(client.choose()));
  const auto ticket = client.ticket();
  auto open = detail::opening_of(ticket, std::nullopt).descriptor(1);
  open.tag = 4;
  client.open(open, ticket);
  EXPECT_TRUE(
      is_error(client.next(), 1, ErrorCode::protocol_violation, {"4 messages and 0 bytes"}));
}

// The `open` of this side, and its later credit.
struct Heard {
  std::optional<RawWire::Said> open;
  std::optional<RawWire::Said> credit;
};

Heard play_server(Context& context, std::uint64_t features) {
  detail::HelloMessage hello = claims();
  hello.features = features;
  RawServer server(hello);
  Heard heard;
  std::thread serving([&] {
    RawWire control = server.meet();
    (void)RawServer::admit(control);
    const RawWire lane = server.lane();
    heard.open = control.next();
    for (std::uint64_t n = 1; n <= 128; ++n) control.send_bytes(1, n, "x");
    heard.credit = control.next();
    (void)read_to_end(control.fd());
  });
  {
    auto pipe =
        Pipe::connect(context, server.address(), kPatience, {.security = {Profile::plaintext}});
    EXPECT_TRUE(succeeds(pipe));
    for (int n = 0; pipe && n < 128; ++n) EXPECT_TRUE(succeeds(pipe->recv_message(kPatience))) << n;
  }
  EXPECT_TRUE(succeeds(context.close(kPatience)));
  serving.join();
  return heard;
}

TEST_F(WindowInOpen, ToAPeerThatKnowsItIsSaidAndCreditedByHalf) {
  const Heard heard =
      play_server(context_, static_cast<std::uint64_t>(detail::Feature::window_in_open));
  ASSERT_TRUE(heard.open && heard.credit);
  EXPECT_EQ(heard.open->descriptor.kind, MessageKind::open);
  EXPECT_EQ(heard.open->descriptor.tag, 256u);
  EXPECT_EQ(heard.open->descriptor.sequence, std::uint64_t{64} << 20);
  EXPECT_EQ(heard.credit->descriptor.kind, MessageKind::credit);
  EXPECT_EQ(heard.credit->descriptor.sequence, 128u);
}

TEST_F(WindowInOpen, ToAPeerOf10ItIsNotSaidAndCreditedAsThere) {
  // An unknown bit has no effect.
  const Heard heard =
      play_server(context_, ~static_cast<std::uint64_t>(detail::Feature::window_in_open));
  ASSERT_TRUE(heard.open && heard.credit);
  EXPECT_EQ(heard.open->descriptor.kind, MessageKind::open);
  EXPECT_EQ(heard.open->descriptor.tag, 0u);
  EXPECT_EQ(heard.open->descriptor.sequence, 0u);
  EXPECT_EQ(heard.credit->descriptor.kind, MessageKind::credit);
  EXPECT_EQ(heard.credit->descriptor.sequence, 64u);
}

// Both ends are of this build.
TEST_F(WindowInOpen, APairOfThisBuildSaysItOnBothPaths) {
  for (const Way& way : {kShm, kTcp}) {
    PipePair pair = connect_pair(way);
    for (std::int64_t n = 0; n < 1000; ++n) {
      ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
      ASSERT_EQ(number_of(pair.client.recv(kPatience).value()), n);
    }
    std::int64_t untaken = 0;
    while (pair.server.send(numbered(untaken), kBriefly)) ASSERT_LE(++untaken, kPipeWindowMessages);
    EXPECT_GT(untaken, kPipeWindowMessages / 2 - 1);
  }
}

}  // namespace
}  // namespace tendon::test
