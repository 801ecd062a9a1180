// SPDX-License-Identifier: Apache-2.0
// Which of the connections that ZeroMQ accepted are shut down to admit another one.
#include "control/flows/flow_places.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <tendon/control/limits.hpp>
#include <utility>
#include <vector>

#include "support/expect.hpp"
#include "support/raw_socket.hpp"

namespace tendon::test {
namespace {

using detail::FlowPlaces;
using detail::OwnedFd;

/// Plays both ZeroMQ, which accepts every connection, and the connecting peers.
class FlowHandshakes : public testing::Test {
 protected:
  struct Connection {
    OwnedFd far;   // the connecting peer's
    OwnedFd near;  // ZeroMQ's
  };

  Connection& add() {
    OwnedFd far = connect_raw(listener_.address());
    connections_.push_back({std::move(far), listener_.accept()});
    places_.accepted(connections_.back().near.get(), "tcp://" + listener_.address(), now_);
    return connections_.back();
  }
  void fill() {
    while (connections_.size() < kHandshakesPerFlow) add();
  }
  [[nodiscard]] bool is_open(std::size_t which) const {
    char byte = 0;
    const ssize_t got = recv(connections_[which].far.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got > 0 || (got < 0 && errno == EAGAIN);
  }

  const FlowPlaces::Time now_ = std::chrono::steady_clock::now();
  RawListener listener_;
  FlowPlaces places_ = FlowPlaces::open().value();
  std::vector<Connection> connections_;
};

TEST_F(FlowHandshakes, TheOldestSilentConnectionIsShutDownForANewOne) {
  fill();
  EXPECT_TRUE(is_open(0));
  add();
  EXPECT_FALSE(is_open(0));
  add();
  EXPECT_FALSE(is_open(1));
  for (std::size_t i = 2; i < connections_.size(); ++i) EXPECT_TRUE(is_open(i)) << i;
}

TEST_F(FlowHandshakes, AConnectionWhoseHandshakeHasEndedStays) {
  // A handshake is not over after a greeting and WELCOME.
  for (const std::size_t said : {64 + 170, 64 + 170 + 60}) {
    Connection& connection = add();
    const std::string bytes(said, 'x');
    ASSERT_EQ(send(connection.near.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    std::array<char, 512> buffer{};
    ASSERT_EQ(recv(connection.far.get(), buffer.data(), said, MSG_WAITALL),
              static_cast<ssize_t>(said));
  }
  fill();
  add();
  add();
  EXPECT_FALSE(is_open(0));
  EXPECT_TRUE(is_open(1));
  EXPECT_TRUE(is_open(2));
}

TEST_F(FlowHandshakes, ADescriptorThatBelongsToSomethingElseNowIsLeftAlone) {
  const RawListener other;
  Connection& first = add();
  const int number = first.near.get();
  first.near.reset();
  const OwnedFd far = connect_raw(other.address());
  const OwnedFd near = other.accept();
  ASSERT_EQ(far.get(), number) << "the lowest free number is given next";
  fill();
  add();
  char byte = 0;
  EXPECT_EQ(recv(far.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(recv(near.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(FlowHandshakes, ANumberOfAnotherKindOfDescriptorIsNoConnection) {
  const RawListener other;
  const OwnedFd far = connect_raw(other.address());
  const OwnedFd near = other.accept();
  places_.accepted(near.get(), "tcp://" + listener_.address(), now_);
  places_.accepted(-1, "tcp://" + listener_.address(), now_);
  places_.accepted(0, "", now_);
  fill();
  EXPECT_TRUE(is_open(0));
  add();
  EXPECT_FALSE(is_open(0));
  char byte = 0;
  EXPECT_EQ(recv(far.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
}  // namespace tendon::test
