// SPDX-License-Identifier: Apache-2.0
#include "session/handshake.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tendon/core/bytes.hpp>
#include <vector>

namespace {

using namespace tendon::detail;
using tendon::Bytes;
using tendon::Error;
using tendon::ErrorCode;
using tendon::PathKind;
using tendon::Profile;
using testing::HasSubstr;

constexpr HelloKind kKinds[] = {HelloKind::hello, HelloKind::attach, HelloKind::path,
                                HelloKind::ready, HelloKind::reject, HelloKind::lane};

HelloMessage message_of(HelloKind kind, const std::string& name = "") {
  HelloMessage message;
  message.kind = kind;
  message.name = name;
  message.profile = Profile::local;
  message.context_id.bytes[0] = std::byte{1};
  message.host = "h";
  message.pid = 7;
  message.progress = ProgressMode::service;
  message.limits = LinkLimits{1, 1, 1, 1, 1};
  message.ticket[0] = std::byte{2};
  message.nonce[0] = std::byte{3};
  message.path = PathKind::tcp;
  message.error_code = static_cast<std::uint16_t>(ErrorCode::server_busy);
  message.reason = "reason of " + name;
  return message;
}

HandshakeStep feed(Handshake& machine, const std::vector<std::byte>& bytes) {
  Bytes input(bytes);
  return machine.on_bytes(input);
}
HandshakeStep feed(Handshake& machine, HelloKind kind) {
  return feed(machine, encode(message_of(kind, "peer")));
}

// Brings a fresh machine to `state` by the shortest sequence.
Handshake machine_in(HandshakeState state) {
  const auto send = [](Handshake& machine, HelloKind kind) {
    EXPECT_NE(machine.reply(message_of(kind)).next, Next::failed);
  };
  Handshake connector = Handshake::connector();
  Handshake acceptor = Handshake::acceptor();
  const auto connector_steps = [&](HandshakeState until) {
    if (until == HandshakeState::start) return;
    send(connector, HelloKind::hello);
    if (until == HandshakeState::await_hello) return;
    feed(connector, HelloKind::hello);
    if (until == HandshakeState::choose) return;
    if (until == HandshakeState::await_ready) return send(connector, HelloKind::path);
    send(connector, HelloKind::attach);
    if (until == HandshakeState::await_attach) return;
    feed(connector, HelloKind::attach);
    if (until == HandshakeState::confirm) return;
    send(connector, HelloKind::ready);
  };
  const auto acceptor_steps = [&](HandshakeState until) {
    if (until == HandshakeState::await_first) return;
    feed(acceptor, HelloKind::hello);
    if (until == HandshakeState::answer) return;
    send(acceptor, HelloKind::hello);
    if (until == HandshakeState::await_choice) return;
    if (until == HandshakeState::admit) {
      feed(acceptor, HelloKind::path);
      return;
    }
    feed(acceptor, HelloKind::attach);
    if (until == HandshakeState::map) return;
    send(acceptor, HelloKind::attach);
  };
  switch (state) {
    case HandshakeState::await_first:
    case HandshakeState::answer:
    case HandshakeState::await_choice:
    case HandshakeState::admit:
    case HandshakeState::map:
    case HandshakeState::await_confirm:
      acceptor_steps(state);
      EXPECT_EQ(acceptor.state(), state);
      return acceptor;
    case HandshakeState::failed:
      EXPECT_EQ(connector.on_end().next, Next::failed);
      return connector;
    default:
      connector_steps(state);
      EXPECT_EQ(connector.state(), state);
      return connector;
  }
}

constexpr HandshakeState kStates[] = {
    HandshakeState::start,       HandshakeState::await_hello,  HandshakeState::choose,
    HandshakeState::await_ready, HandshakeState::await_attach, HandshakeState::confirm,
    HandshakeState::await_first, HandshakeState::answer,       HandshakeState::await_choice,
    HandshakeState::admit,       HandshakeState::map,          HandshakeState::await_confirm,
    HandshakeState::established, HandshakeState::failed};

// The table of docs/protocol.md, written a second time.
struct Row {
  HandshakeState from;
  char direction;
  HelloKind kind;
  HandshakeState to;
};
using S = HandshakeState;
using K = HelloKind;
constexpr Row kTable[] = {
    {S::start, '>', K::hello, S::await_hello},
    {S::start, '>', K::lane, S::await_ready},
    {S::await_hello, '<', K::hello, S::choose},
    {S::choose, '>', K::path, S::await_ready},
    {S::choose, '>', K::attach, S::await_attach},
    {S::await_ready, '<', K::ready, S::established},
    {S::await_attach, '<', K::attach, S::confirm},
    {S::confirm, '>', K::ready, S::established},
    {S::await_first, '<', K::hello, S::answer},
    {S::await_first, '<', K::lane, S::admit},
    {S::answer, '>', K::hello, S::await_choice},
    {S::await_choice, '<', K::path, S::admit},
    {S::await_choice, '<', K::attach, S::map},
    {S::admit, '>', K::ready, S::established},
    {S::map, '>', K::attach, S::await_confirm},
    {S::await_confirm, '<', K::ready, S::established},
};
const Row* find(HandshakeState from, char direction, HelloKind kind) {
  for (const Row& row : kTable) {
    if (row.from == from && row.direction == direction && row.kind == kind) return &row;
  }
  return nullptr;
}
bool any(HandshakeState from, char direction) {
  for (const HelloKind kind : kKinds) {
    if (find(from, direction, kind) != nullptr) return true;
  }
  return false;
}

TEST(Handshake, SendsOnlyWhatTheTableAllows) {
  for (const HandshakeState state : kStates) {
    for (const HelloKind kind : kKinds) {
      SCOPED_TRACE(std::string(to_string(state)) + " sends " + std::string(to_string(kind)));
      Handshake machine = machine_in(state);
      const HandshakeStep step = machine.reply(message_of(kind));
      const Row* row = find(state, '>', kind);
      EXPECT_EQ(machine.state(), row != nullptr ? row->to : S::failed);
      if (row != nullptr) {
        EXPECT_EQ(step.send, encode(message_of(kind)));
        EXPECT_EQ(step.next, row->to == S::established ? Next::done : Next::read);
      } else {
        EXPECT_EQ(step.next, Next::failed);
        EXPECT_EQ(step.error.value().code, ErrorCode::internal);
        EXPECT_TRUE(step.send.empty());
      }
    }
  }
}

TEST(Handshake, ReceivesOnlyWhatTheTableAllows) {
  for (const HandshakeState state : kStates) {
    for (const HelloKind kind : kKinds) {
      SCOPED_TRACE(std::string(to_string(state)) + " receives " + std::string(to_string(kind)));
      Handshake machine = machine_in(state);
      const std::vector<std::byte> bytes = encode(message_of(kind, "peer"));
      Bytes input(bytes);
      const HandshakeStep step = machine.on_bytes(input);
      if (!any(state, '<')) {
        EXPECT_EQ(input.size(), bytes.size()) << "nothing is taken while a decision is due";
        EXPECT_EQ(machine.state(), state);
        EXPECT_EQ(step.next, state == S::established ? Next::done
                             : state == S::failed    ? Next::failed
                                                     : Next::decide);
        continue;
      }
      EXPECT_TRUE(input.empty());
      const Row* row = find(state, '<', kind);
      if (row != nullptr) {
        EXPECT_EQ(machine.state(), row->to);
        EXPECT_EQ(step.next, row->to == S::established ? Next::done : Next::decide);
        EXPECT_EQ(step.message.value(), message_of(kind, "peer"));
        EXPECT_TRUE(step.send.empty());
        continue;
      }
      EXPECT_EQ(machine.state(), S::failed);
      EXPECT_EQ(step.next, Next::failed);
      if (kind == HelloKind::reject && state != S::await_first) {
        EXPECT_EQ(step.error.value().code, ErrorCode::server_busy);
        EXPECT_THAT(step.error->detail, HasSubstr("the peer refused: reason of peer"));
        EXPECT_TRUE(step.send.empty());
      } else {
        EXPECT_EQ(step.error.value().code, ErrorCode::protocol_violation);
        EXPECT_THAT(step.error->detail, HasSubstr("'" + std::string(to_string(kind)) + "'"));
        EXPECT_THAT(step.error->detail, HasSubstr("'" + std::string(to_string(state)) + "'"));
      }
    }
  }
}

TEST(Handshake, RejectsWhereverItMaySend) {
  for (const HandshakeState state : kStates) {
    SCOPED_TRACE(to_string(state));
    Handshake machine = machine_in(state);
    const HandshakeStep step =
        machine.reject(Error{ErrorCode::permission_denied, "x.y", "not you", 0});
    EXPECT_EQ(step.next, Next::failed);
    EXPECT_EQ(machine.state(), S::failed);
    if (any(state, '>')) {
      EXPECT_EQ(step.error.value().code, ErrorCode::permission_denied);
      const HelloMessage told = decode(step.send).value();
      EXPECT_EQ(told.kind, HelloKind::reject);
      EXPECT_EQ(told.reason, "not you");
    } else {
      EXPECT_EQ(step.error.value().code, ErrorCode::internal);
      EXPECT_TRUE(step.send.empty());
    }
  }
}

// Two machines and a wire that carries one byte at a time. Each end must send frames that the other
// expects.
class Wire {
 public:
  void connector_sends(HandshakeStep step) { carry(std::move(step), acceptor_, from_connector_); }
  void acceptor_sends(HandshakeStep step) { carry(std::move(step), connector_, from_acceptor_); }

  Handshake connector_ = Handshake::connector();
  Handshake acceptor_ = Handshake::acceptor();
  HandshakeStep from_connector_;  // the acceptor's step for it
  HandshakeStep from_acceptor_;

 private:
  static void carry(HandshakeStep step, Handshake& to, HandshakeStep& outcome) {
    ASSERT_FALSE(step.send.empty());
    for (const std::byte byte : step.send) {
      Bytes input(&byte, 1);
      outcome = to.on_bytes(input);
      ASSERT_TRUE(input.empty());
    }
  }
};

TEST(Handshake, OverTcp) {
  Wire wire;
  wire.connector_sends(wire.connector_.reply(message_of(K::hello, "c")));
  ASSERT_EQ(wire.from_connector_.next, Next::decide);
  EXPECT_EQ(wire.acceptor_.peer().value().name, "c");
  wire.acceptor_sends(wire.acceptor_.reply(message_of(K::hello, "a")));
  ASSERT_EQ(wire.from_acceptor_.next, Next::decide);
  EXPECT_EQ(wire.connector_.peer().value().name, "a");
  wire.connector_sends(wire.connector_.reply(message_of(K::path)));
  ASSERT_EQ(wire.from_connector_.next, Next::decide);
  EXPECT_EQ(wire.from_connector_.message.value().path, PathKind::tcp);
  wire.acceptor_sends(wire.acceptor_.reply(message_of(K::ready)));
  EXPECT_EQ(wire.from_acceptor_.next, Next::done);
  EXPECT_EQ(wire.connector_.state(), S::established);
  EXPECT_EQ(wire.acceptor_.state(), S::established);
}

TEST(Handshake, OverAUnixSocket) {
  Wire wire;
  wire.connector_sends(wire.connector_.reply(message_of(K::hello, "c")));
  wire.acceptor_sends(wire.acceptor_.reply(message_of(K::hello, "a")));
  wire.connector_sends(wire.connector_.reply(message_of(K::attach)));
  ASSERT_EQ(wire.from_connector_.next, Next::decide);
  wire.acceptor_sends(wire.acceptor_.reply(message_of(K::attach)));
  ASSERT_EQ(wire.from_acceptor_.next, Next::decide);
  wire.connector_sends(wire.connector_.reply(message_of(K::ready)));
  EXPECT_EQ(wire.from_connector_.next, Next::done);
  EXPECT_EQ(wire.connector_.state(), S::established);
  EXPECT_EQ(wire.acceptor_.state(), S::established);
}

TEST(Handshake, ALaneJoins) {
  Wire wire;
  wire.connector_sends(wire.connector_.reply(message_of(K::lane)));
  ASSERT_EQ(wire.from_connector_.next, Next::decide);
  EXPECT_EQ(wire.acceptor_.peer().value().kind, HelloKind::lane);
  wire.acceptor_sends(wire.acceptor_.reply(message_of(K::ready)));
  EXPECT_EQ(wire.connector_.state(), S::established);
  EXPECT_EQ(wire.acceptor_.state(), S::established);
}

TEST(Handshake, ARefusalArrivesWithItsReasonAndThePeersName) {
  Wire wire;
  wire.connector_sends(wire.connector_.reply(message_of(K::hello, "c")));
  wire.acceptor_sends(wire.acceptor_.reply(message_of(K::hello, "a")));
  wire.connector_sends(wire.connector_.reply(message_of(K::path)));
  wire.acceptor_sends(
      wire.acceptor_.reject(Error{ErrorCode::permission_denied, "x.y", "uid 7 is not uid 8", 0}));
  ASSERT_EQ(wire.from_acceptor_.next, Next::failed);
  EXPECT_EQ(wire.from_acceptor_.error.value().code, ErrorCode::permission_denied);
  EXPECT_EQ(wire.from_acceptor_.error->detail,
            "the peer refused: uid 7 is not uid 8 (peer a (host h, pid 7))");
}

TEST(Handshake, WhatFollowsTheLastFrameIsLeftAlone) {
  Handshake machine = machine_in(S::await_ready);
  std::vector<std::byte> bytes = encode(message_of(K::ready));
  bytes.insert(bytes.end(), 64, std::byte{9});
  Bytes input(bytes);
  EXPECT_EQ(machine.on_bytes(input).next, Next::done);
  EXPECT_EQ(input.size(), 64u);
  EXPECT_EQ(machine.on_bytes(input).next, Next::done);
  EXPECT_EQ(input.size(), 64u);
}

TEST(Handshake, AFrameTooEarlyWaitsForTheDecision) {
  Handshake machine = machine_in(S::await_first);
  std::vector<std::byte> bytes = encode(message_of(K::hello));
  const std::size_t first = bytes.size();
  const std::vector<std::byte> second = encode(message_of(K::path));
  bytes.insert(bytes.end(), second.begin(), second.end());
  Bytes input(bytes);
  EXPECT_EQ(machine.on_bytes(input).next, Next::decide);
  EXPECT_EQ(input.size(), bytes.size() - first);
  EXPECT_EQ(machine.on_bytes(input).next, Next::decide);
  EXPECT_EQ(input.size(), bytes.size() - first);
  EXPECT_EQ(machine.reply(message_of(K::hello)).next, Next::read);
  EXPECT_EQ(machine.on_bytes(input).message.value().kind, HelloKind::path);
}

TEST(Handshake, NonsenseGetsOneUniformAnswerFromAnAcceptor) {
  std::vector<std::byte> uniform;
  for (const std::string_view text :
       {std::string_view("GET / HTTP/1.1\r\n"),
        std::string_view("TNDN\1\0\0\0\1\0\1\0\0\0\0\0", 16),
        std::string_view("TNDN\1\0\0\0\1\0\0\0\xff\xff\xff\xff", 16)}) {
    Handshake acceptor = Handshake::acceptor();
    Bytes input = tendon::as_bytes(text);
    const HandshakeStep step = acceptor.on_bytes(input);
    ASSERT_EQ(step.next, Next::failed);
    EXPECT_EQ(step.error.value().code, ErrorCode::protocol_violation);
    EXPECT_EQ(decode(step.send).value().kind, HelloKind::reject);
    if (uniform.empty()) uniform = step.send;
    EXPECT_EQ(step.send, uniform);

    Handshake connector = machine_in(S::await_hello);
    input = tendon::as_bytes(text);
    const HandshakeStep silent = connector.on_bytes(input);
    EXPECT_EQ(silent.next, Next::failed);
    EXPECT_TRUE(silent.send.empty());
  }
  // A wrong frame in a wrong state receives the same answer.
  Handshake acceptor = machine_in(S::await_choice);
  EXPECT_EQ(feed(acceptor, K::lane).send, uniform);
}

TEST(Handshake, AnotherVersionIsToldOurs) {
  HelloMessage newer = message_of(K::hello);
  newer.version = {.major = 9, .minor = 1, .min_major = 8};
  Handshake acceptor = Handshake::acceptor();
  const HandshakeStep step = feed(acceptor, encode(newer));
  ASSERT_EQ(step.next, Next::failed);
  EXPECT_EQ(step.error.value().code, ErrorCode::version_mismatch);
  const Error told = error_of(decode(step.send).value());
  EXPECT_EQ(told.code, ErrorCode::version_mismatch);
  EXPECT_THAT(told.detail, HasSubstr("8 to 9.1"));
  EXPECT_THAT(told.detail, HasSubstr("version 1.2"));
}

TEST(Handshake, EndAndTimeoutNamePeerAndState) {
  Handshake early = machine_in(S::await_hello);
  const HandshakeStep end = early.on_end();
  EXPECT_EQ(end.next, Next::failed);
  EXPECT_EQ(end.error.value().code, ErrorCode::peer_lost);
  EXPECT_THAT(end.error->detail, HasSubstr("the peer closed"));
  EXPECT_THAT(end.error->detail, HasSubstr("'await_hello'"));
  EXPECT_EQ(early.state(), S::failed);

  Handshake late = machine_in(S::await_choice);
  const HandshakeStep timeout = late.on_timeout();
  EXPECT_EQ(timeout.error.value().code, ErrorCode::timeout);
  EXPECT_THAT(timeout.error->detail, HasSubstr("peer peer (host h, pid 7) did not finish"));
  EXPECT_THAT(timeout.error->detail, HasSubstr("'await_choice'"));
}

}  // namespace
