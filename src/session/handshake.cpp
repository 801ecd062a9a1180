// SPDX-License-Identifier: Apache-2.0
#include "session/handshake.hpp"

#include <array>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "session.handshake";

struct Transition {
  HandshakeState from;
  HelloKind frame;
  HandshakeState to;
};
using enum HandshakeState;

// The table of the header, split by direction.
constexpr std::array kSends = {
    Transition{start, HelloKind::hello, await_hello},
    Transition{start, HelloKind::lane, await_ready},
    Transition{choose, HelloKind::path, await_ready},
    Transition{choose, HelloKind::attach, await_attach},
    Transition{confirm, HelloKind::ready, established},
    Transition{answer, HelloKind::hello, await_choice},
    Transition{admit, HelloKind::ready, established},
    Transition{map, HelloKind::attach, await_confirm},
};
constexpr std::array kReceives = {
    Transition{await_hello, HelloKind::hello, choose},
    Transition{await_ready, HelloKind::ready, established},
    Transition{await_attach, HelloKind::attach, confirm},
    Transition{await_first, HelloKind::hello, answer},
    Transition{await_first, HelloKind::lane, admit},
    Transition{await_choice, HelloKind::path, admit},
    Transition{await_choice, HelloKind::attach, map},
    Transition{await_confirm, HelloKind::ready, established},
};

template <class Table>
const Transition* find(const Table& table, HandshakeState state, HelloKind frame) {
  for (const Transition& row : table) {
    if (row.from == state && row.frame == frame) return &row;
  }
  return nullptr;
}

template <class Table>
bool has_row(const Table& table, HandshakeState state) {
  for (const Transition& row : table) {
    if (row.from == state) return true;
  }
  return false;
}

}  // namespace

std::string Handshake::peer_text() const {
  return peer_ && peer_->kind == HelloKind::hello ? "peer " + identity_of(*peer_).to_string()
                                                  : "the peer";
}

HandshakeStep Handshake::fail(Error error) {
  state_ = failed;
  HandshakeStep step;
  step.next = Next::failed;
  step.error = std::move(error);
  return step;
}

HandshakeStep Handshake::refuse(Error error) {
  // A peer that sends nonsense learns nothing from the answer; another version of Tendon is told.
  const Error told =
      error.code == ErrorCode::version_mismatch
          ? error
          : Error{ErrorCode::protocol_violation, kWhere, "the bytes received break the protocol"};
  HandshakeStep step = fail(std::move(error));
  if (is_acceptor_) step.send = encode(rejection_of(told));
  return step;
}

HandshakeStep Handshake::reply(const HelloMessage& message) {
  const Transition* row = find(kSends, state_, message.kind);
  if (row == nullptr) {
    return fail(Error{ErrorCode::internal, kWhere,
                      "a frame of kind '" + std::string(to_string(message.kind)) +
                          "' may not be sent in state '" + std::string(to_string(state_)) + "'"});
  }
  state_ = row->to;
  HandshakeStep step;
  step.send = encode(message);
  step.next = state_ == established ? Next::done : Next::read;
  return step;
}

HandshakeStep Handshake::reject(Error error) {
  if (!has_row(kSends, state_)) {
    return fail(Error{ErrorCode::internal, kWhere,
                      "nothing may be sent in state '" + std::string(to_string(state_)) +
                          "'; the reason was: " + error.detail});
  }
  std::vector<std::byte> frame = encode(rejection_of(error));
  HandshakeStep step = fail(std::move(error));
  step.send = std::move(frame);
  return step;
}

HandshakeStep Handshake::on_bytes(Bytes& input) {
  HandshakeStep step;
  if (state_ == established) {
    step.next = Next::done;
    return step;
  }
  // Bytes that arrive while a decision is due are not taken: they may already belong to the link.
  if (!has_row(kReceives, state_)) {
    step.next = state_ == failed ? Next::failed : Next::decide;
    return step;
  }
  auto read = reader_.on_bytes(input);
  if (!read) {
    return refuse(std::move(read).error());
  }
  if (!*read) return step;
  HelloMessage message = *std::move(*read);
  if (message.kind == HelloKind::reject && state_ != await_first) {
    Error error = error_of(message);
    if (peer_) error.detail += " (" + peer_text() + ")";
    return fail(std::move(error));
  }
  const Transition* row = find(kReceives, state_, message.kind);
  if (row == nullptr) {
    return refuse(Error{ErrorCode::protocol_violation, kWhere,
                        peer_text() + " sent a frame of kind '" +
                            std::string(to_string(message.kind)) + "' in state '" +
                            std::string(to_string(state_)) + "'"});
  }
  state_ = row->to;
  if (message.kind == HelloKind::hello || message.kind == HelloKind::lane) peer_ = message;
  step.next = state_ == established ? Next::done : Next::decide;
  step.message = std::move(message);
  return step;
}

HandshakeStep Handshake::on_end() {
  return fail(Error{ErrorCode::peer_lost, kWhere,
                    peer_text() + " closed the connection during the handshake, in state '" +
                        std::string(to_string(state_)) + "'"});
}

HandshakeStep Handshake::on_timeout() {
  return fail(Error{ErrorCode::timeout, kWhere,
                    peer_text() + " did not finish the handshake in time, in state '" +
                        std::string(to_string(state_)) + "'"});
}

}  // namespace tendon::v0::detail
