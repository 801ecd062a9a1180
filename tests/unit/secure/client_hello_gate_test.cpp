// SPDX-License-Identifier: Apache-2.0
#include "secure/client_hello_gate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "secure/tls_handshake.hpp"
#include "secure/tls_limits.hpp"
#include "support/expect.hpp"
#include "support/secure/holders.hpp"

namespace tendon::test {
namespace {

using detail::kMaxClientHelloBytes;
using detail::kMaxHandshakeInputBytes;
using detail::secure::ClientHello;
using detail::secure::look_at_client_hello;
using detail::secure::TlsHandshake;
using ::testing::HasSubstr;
using ::testing::Not;

/// A hello of `bytes` in all, valid as far as the gate checks.
std::vector<std::byte> hello_of(std::size_t bytes) {
  std::vector<std::byte> hello(bytes);
  const auto put = [&](std::size_t at, std::size_t value, std::size_t width) {
    for (std::size_t n = 0; n < width; ++n)
      hello[at + n] = static_cast<std::byte>(value >> (8 * (width - 1 - n)));
  };
  put(0, 0x160303, 3);
  put(3, bytes - 5, 2);
  put(5, 1, 1);
  put(6, bytes - 9, 3);
  return hello;
}

TEST(ClientHelloGate, TakesFourKibibytesAndNotAByteMore) {
  EXPECT_EQ(look_at_client_hello(hello_of(kMaxClientHelloBytes)).value(), ClientHello::whole);
  EXPECT_TRUE(fails_with(look_at_client_hello(hello_of(kMaxClientHelloBytes + 1)),
                         ErrorCode::protocol_violation, "legal are 4 to 4091"));
}

TEST(ClientHelloGate, RefusesWhatIsTooLongByItsHeader) {
  const auto hello = hello_of(kMaxClientHelloBytes + 1);
  EXPECT_EQ(look_at_client_hello(Bytes(hello).first(4)).value(), ClientHello::incomplete);
  EXPECT_TRUE(
      fails_with(look_at_client_hello(Bytes(hello).first(5)), ErrorCode::protocol_violation));
}

TEST(ClientHelloGate, IsOpenForNothingButAWholeOne) {
  const auto hello = hello_of(300);
  for (std::size_t bytes = 0; bytes < hello.size(); ++bytes)
    EXPECT_EQ(look_at_client_hello(Bytes(hello).first(bytes)).value(), ClientHello::incomplete);
  EXPECT_EQ(look_at_client_hello(hello).value(), ClientHello::whole);
  auto longer = hello;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(fails_with(look_at_client_hello(longer), ErrorCode::protocol_violation, "follow"));
}

TEST(ClientHelloGate, RefusesOtherBytesAsSoonAsTheyAreThere) {
  struct Row {
    std::size_t at;
    int value;
  };
  for (const Row& row : {Row{0, 0x17}, Row{0, 0x15}, Row{1, 2}, Row{2, 0}, Row{2, 4}, Row{5, 2},
                         Row{6, 1}, Row{7, 9}, Row{8, 0}}) {
    auto hello = hello_of(300);
    hello[row.at] = static_cast<std::byte>(row.value);
    const std::size_t known = row.at < 6 ? row.at + 1 : 9;
    EXPECT_TRUE(look_at_client_hello(Bytes(hello).first(known - 1)));
    EXPECT_TRUE(
        fails_with(look_at_client_hello(Bytes(hello).first(known)), ErrorCode::protocol_violation))
        << row.at;
  }
}

/// A server that has answered a client, and the number of bytes it has taken.
struct Answered {
  std::unique_ptr<TlsHandshake> server;
  std::size_t taken_bytes = 0;

  Answered() {
    const auto credentials = holder_of_key("fleet", 'a');
    auto client = TlsHandshake::make(credentials, TlsHandshake::Role::client).value();
    server = TlsHandshake::make(credentials, TlsHandshake::Role::server).value();
    std::vector<std::byte> hello;
    std::vector<std::byte> answer;
    client->advance({}, hello).value();
    server->advance(hello, answer).value();
    taken_bytes = hello.size();
    EXPECT_EQ(server->state(), TlsHandshake::State::answer);
  }
};

TEST(HandshakeInput, IsTwentyFourKibibytesAndNotAByteMore) {
  for (const std::size_t over : {0u, 1u}) {
    Answered answered;
    // OpenSSL receives the bytes within the limit, and none beyond it.
    std::vector<std::byte> junk(kMaxHandshakeInputBytes - answered.taken_bytes + over,
                                std::byte{0x17});
    std::vector<std::byte> output;
    const auto done = answered.server->advance(junk, output);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::protocol_violation);
    if (over != 0) {
      EXPECT_THAT(done.error().detail, HasSubstr("24577 bytes before it was authenticated"));
    } else {
      EXPECT_THAT(done.error().detail, Not(HasSubstr("before it was authenticated")));
    }
    EXPECT_EQ(answered.server->state(), TlsHandshake::State::failed);
  }
}

}  // namespace
}  // namespace tendon::test
