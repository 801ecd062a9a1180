// SPDX-License-Identifier: Apache-2.0
// A process without a free descriptor.
#include <gtest/gtest.h>

#include <string>

#include "process/peer.hpp"
#include "process/survivor.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Descriptors : public PathTest {};
TENDON_ON_BOTH_TRANSPORTS(Descriptors);

TEST_P(Descriptors, ConnectingWithoutOneIsNamedAndTheOthersLiveOn) {
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(is_ok(peer.ask("descriptors 0")));
  EXPECT_TRUE(is_error(peer.ask("connect " + survivor.address()), "too_many_open_files"));
  EXPECT_TRUE(is_error(peer.ask("listen"), "too_many_open_files"));
  EXPECT_TRUE(is_ok(peer.ask("send 1 100"))) << "the pipe that exists is not concerned";
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, 100));
  ASSERT_TRUE(is_ok(peer.ask("descriptors 1000")));
  EXPECT_TRUE(is_ok(peer.ask("connect " + survivor.address())));
}

TEST_P(Descriptors, EveryNumberOfThemFailsCleanlyOrWorks) {
  for (int spare = 0; spare < 14; ++spare) {
    SCOPED_TRACE(std::to_string(spare) + " free descriptors");
    Survivor survivor(GetParam());
    Peer peer(victim());
    ASSERT_TRUE(is_ok(peer.ask("descriptors " + std::to_string(spare))));
    const std::string connected = peer.ask("connect " + survivor.address() + " local 5000");
    std::string used = "ok";
    if (is_ok(connected)) {
      Pipe pipe = survivor.listener().accept(kPatience).value();
      used = peer.ask("send 1 100000 5000");
      // The receiver gets the message or learns that the link is over.
      const auto received = pipe.recv(kPatience);
      if (is_ok(used)) {
        EXPECT_TRUE(succeeds(received));
      }
    } else {
      EXPECT_TRUE(is_error(connected, "too_many_open_files"));
    }
    if (!is_ok(used)) {
      EXPECT_TRUE(is_error(used, "too_many_open_files"));
    }
    ASSERT_TRUE(is_ok(peer.ask("descriptors 1000")));
    survivor.expect_alive(GetParam());
  }
}

TEST_P(Descriptors, AListenerWithoutOneRefusesAndGoesOnLater) {
  Peer peer(victim());
  const std::string address = value_of(peer.ask("listen"));
  Context context = Context::create({.transport = GetParam()}).value();
  Pipe before = Pipe::connect(context, address, kPatience).value();
  ASSERT_TRUE(is_ok(peer.ask("accept")));
  ASSERT_TRUE(is_ok(peer.ask("descriptors 0")));
  Context other = Context::create({.transport = GetParam()}).value();
  const auto refused = Pipe::connect(other, address, 300ms);
  EXPECT_FALSE(refused);
  ASSERT_TRUE(succeeds(before.send(patterned(1, 100), kPatience)));
  EXPECT_TRUE(is_ok(peer.ask("recv 1 100"))) << "the pipe that exists is not concerned";
  ASSERT_TRUE(is_ok(peer.ask("descriptors 1000")));
  auto after = Pipe::connect(other, address, kPatience);
  ASSERT_TRUE(succeeds(after));
}

TEST_P(Descriptors, ASegmentThatCannotBeTakenInWaitsForOneAndTheLinkLivesOn) {
  if (!is_shm()) GTEST_SKIP() << "no segments over sockets";
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(is_ok(peer.ask("descriptors 0")));
  ASSERT_TRUE(succeeds(pipe.send(patterned(1, 100), kPatience)));
  ASSERT_TRUE(succeeds(pipe.send(patterned(2, 100'000), kPatience)));
  ASSERT_TRUE(succeeds(pipe.send(patterned(3, 100), kPatience)));
  EXPECT_TRUE(is_ok(peer.ask("recv 1 100"))) << "what came before it is not concerned";
  EXPECT_TRUE(is_error(peer.ask("recv 2 100000 1200"), "timeout")) << "two ticks of the link";
  ASSERT_TRUE(is_ok(peer.ask("send 4 100"))) << "nor is what goes the other way";
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 4, 100));
  ASSERT_TRUE(is_ok(peer.ask("descriptors 1000")));
  EXPECT_TRUE(is_ok(peer.ask("recv 2 100000")));
  EXPECT_TRUE(is_ok(peer.ask("recv 3 100")));
  ASSERT_TRUE(succeeds(pipe.send(patterned(5, 1'000'000), kPatience))) << "another segment";
  EXPECT_TRUE(is_ok(peer.ask("recv 5 1000000")));
  EXPECT_TRUE(is_ok(peer.ask("close")));
  EXPECT_EQ(pipe.recv(kPatience).error().code, ErrorCode::end_of_stream);
}

// Its peer has closed in order meanwhile: no message of that peer is lost.
TEST_P(Descriptors, WhatWaitsForOneComesAlsoFromAPeerThatHasGone) {
  if (!is_shm()) GTEST_SKIP() << "no segments over sockets";
  Peer peer(victim());
  const std::string address = value_of(peer.ask("listen"));
  {
    Context context = Context::create({.transport = GetParam()}).value();
    Pipe pipe = Pipe::connect(context, address, kPatience).value();
    ASSERT_TRUE(is_ok(peer.ask("accept")));
    ASSERT_TRUE(is_ok(peer.ask("descriptors 0")));
    ASSERT_TRUE(succeeds(pipe.send(patterned(1, 100'000), kPatience)));
    ASSERT_TRUE(succeeds(pipe.finish_sending(kPatience)));
  }
  EXPECT_TRUE(is_error(peer.ask("recv 1 100000 1200"), "timeout"));
  ASSERT_TRUE(is_ok(peer.ask("descriptors 1000")));
  EXPECT_TRUE(is_ok(peer.ask("recv 1 100000")));
  EXPECT_TRUE(is_error(peer.ask("recv 2 1"), "end_of_stream"));
}

class AddressSpace : public PathTest {};
TENDON_ON_BOTH_TRANSPORTS(AddressSpace);

// shm: the segment of 64 slots cannot be mapped; tcp: there is no memory for the body.
TEST_P(AddressSpace, AMessageThatFindsNoneFailsAndTheLinkLivesOn) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer needs address space of its own";
  const std::uint64_t size = is_shm() ? 300'000 : 100'000'000;  // no arena of malloc has as much
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(succeeds(pipe.send(patterned(9, 100), kPatience)));
  ASSERT_TRUE(is_ok(peer.ask("recv 9 100"))) << "the schema is known";
  ASSERT_TRUE(is_ok(peer.ask("address-space 8000000")));
  ASSERT_TRUE(succeeds(pipe.send(patterned(1, size), kPatience)));
  EXPECT_TRUE(is_error(peer.ask("recv 1 " + std::to_string(size)), "resource_exhausted"));
  ASSERT_TRUE(is_ok(peer.ask("address-space any")));
  ASSERT_TRUE(succeeds(pipe.send(patterned(2, size), kPatience)));
  EXPECT_TRUE(is_ok(peer.ask("recv 2 " + std::to_string(size))));
  EXPECT_TRUE(is_ok(peer.ask("send 3 100")));
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 3, 100));
}

}  // namespace
}  // namespace tendon::test
