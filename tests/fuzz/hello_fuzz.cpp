// SPDX-License-Identifier: Apache-2.0
// Bytes of a peer that nobody has admitted. In any pieces they must have the same messages and the
// same error as in one. A message that can be read must survive being written and read again. The
// handshake must end in a state of its table.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <tendon/session/limits.hpp>

#include "require.hpp"
#include "session/handshake.hpp"
#include "session/hello.hpp"

namespace {

using namespace tendon::detail;
using tendon::Bytes;

using tendon::test::require;

// Returns everything that a reader makes of `stream`, as text. The input itself decides the sizes
// of the pieces.
std::string read_all(Bytes stream, std::size_t step) {
  HelloReader reader;
  std::string log;
  std::size_t turn = 0;
  while (!stream.empty()) {
    const std::size_t wanted = step == 0 ? stream.size() : 1 + turn++ * step % 61;
    Bytes piece = stream.first(std::min(stream.size(), wanted));
    stream = stream.subspan(piece.size());
    while (!piece.empty()) {
      const std::size_t before = piece.size();
      const auto message = reader.on_bytes(piece);
      require(reader.buffered_bytes() <= tendon::kMaxHelloBytes);
      if (!message) {
        require(!reader.on_bytes(piece));
        return log + message.error().message();
      }
      require(piece.size() < before);
      if (!*message) continue;
      const auto again = encode(**message);
      require(again.size() <= tendon::kMaxHelloBytes);
      require(decode(again).value() == **message);
      // These codes describe the caller of this process, which a peer cannot know.
      const tendon::ErrorCode code = error_of(**message).code;
      require(code != tendon::ErrorCode::timeout && code != tendon::ErrorCode::busy &&
              code != tendon::ErrorCode::context_closed);
      log += to_hex(again) + "\n" + identity_of(**message).to_string() + "\n" +
             error_of(**message).message();
    }
  }
  return log + std::to_string(reader.buffered_bytes());
}

HelloMessage reply_of(HandshakeState state) {
  HelloMessage message;
  switch (state) {
    case HandshakeState::choose:
      message.kind = HelloKind::path;
      message.path = tendon::PathKind::tcp;
      return message;
    case HandshakeState::map:
      message.kind = HelloKind::attach;
      return message;
    case HandshakeState::confirm:
    case HandshakeState::admit:
      message.kind = HelloKind::ready;
      return message;
    default:
      return message;  // a hello
  }
}

void shake_hands(Handshake machine, Bytes input) {
  for (;;) {
    const std::size_t before = input.size();
    HandshakeStep step = machine.on_bytes(input);
    if (step.next == Next::decide) {
      require(step.message.has_value());
      step = machine.reply(reply_of(machine.state()));
      require(!step.send.empty());
    }
    require((step.next == Next::failed) == (machine.state() == HandshakeState::failed));
    require((step.next == Next::done) == (machine.state() == HandshakeState::established));
    require((step.next == Next::failed) == step.error.has_value());
    if (step.next != Next::read || input.empty()) return;
    require(input.size() < before);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  const std::string whole = read_all(input, 0);
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{23}}) {
    require(read_all(input, step) == whole);
  }
  if (const auto message = decode(input)) require(decode(encode(*message)).value() == *message);
  shake_hands(Handshake::acceptor(), input);
  Handshake connector = Handshake::connector();
  require(connector.reply(reply_of(HandshakeState::start)).next == Next::read);
  shake_hands(std::move(connector), input);
  return 0;
}
