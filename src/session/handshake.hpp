// SPDX-License-Identifier: Apache-2.0
// The order of the frames of hello.hpp, for both ends. It does no I/O: the transport moves the
// bytes, takes the decisions (`Next::decide`), and passes descriptors with the frames of kind
// `attach`.
//
//   state          role       frame             next
//   -------------  ---------  ----------------  --------------
//   start          connector  sends hello       await_hello
//                             sends lane        await_ready
//   await_hello    connector  receives hello    choose
//   choose         connector  sends path        await_ready
//                             sends attach      await_attach
//   await_ready    connector  receives ready    established
//   await_attach   connector  receives attach   confirm
//   confirm        connector  sends ready       established
//   await_first    acceptor   receives hello    answer
//                             receives lane     admit
//   answer         acceptor   sends hello       await_choice
//   await_choice   acceptor   receives path     admit
//                             receives attach   map
//   admit          acceptor   sends ready       established
//   map            acceptor   sends attach      await_confirm
//   await_confirm  acceptor   receives ready    established
//
// `reject` may be received in every await_* but await_first, and sent in every state that may send;
// it leads to `failed`. The connector chooses `path`, or `attach` at the rendezvous. A lane takes
// one frame each way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/words.hpp>
#include <vector>

#include "session/hello.hpp"

namespace tendon::v0::detail {

enum class HandshakeState : std::uint8_t {
  start,
  await_hello,
  choose,
  await_ready,
  await_attach,
  confirm,
  await_first,
  answer,
  await_choice,
  admit,
  map,
  await_confirm,
  established,
  failed,
};
TENDON_WORDS(HandshakeState, start, await_hello, choose, await_ready, await_attach, confirm,
             await_first, answer, await_choice, admit, map, await_confirm, established, failed);

/// The transport's action after an input.
enum class Next : std::uint8_t {
  read,    ///< wait for bytes
  decide,  ///< check `message`, then call reply() or reject()
  done,    ///< the rest of the input belongs to the link
  failed,  ///< close the connection after `send`; `error` has the reason
};

/// The machine's result for one input. Always send `send` first.
struct HandshakeStep {
  Next next = Next::read;
  std::vector<std::byte> send;
  std::optional<HelloMessage> message;  ///< the received frame, for `decide` and `done`
  std::optional<Error> error;           ///< for `failed`
};

class Handshake {
 public:
  /// Call reply() next, with a hello or a lane.
  [[nodiscard]] static Handshake connector() { return Handshake(HandshakeState::start); }
  [[nodiscard]] static Handshake acceptor() { return Handshake(HandshakeState::await_first); }

  /// Sends one of the frames that the state may send; any other is `internal`, because it is a bug
  /// of ours. A connector begins with it.
  [[nodiscard]] HandshakeStep reply(const HelloMessage& message);
  /// Ends the handshake with a `reject` frame that carries the error's code and detail.
  [[nodiscard]] HandshakeStep reject(Error error);
  /// Takes at most one frame from the front of `input`, and nothing while a decision is due, so
  /// that descriptors received with those bytes belong to that frame. An acceptor refuses bytes
  /// that break the protocol with one uniform `reject`, and other versions with one that names
  /// ours.
  [[nodiscard]] HandshakeStep on_bytes(Bytes& input);
  /// The peer closed the connection.
  [[nodiscard]] HandshakeStep on_end();
  /// kHandshakeTimeout, or the caller's deadline, passed.
  [[nodiscard]] HandshakeStep on_timeout();

  [[nodiscard]] HandshakeState state() const noexcept { return state_; }
  /// The peer's hello or lane, once it has arrived.
  [[nodiscard]] const std::optional<HelloMessage>& peer() const noexcept { return peer_; }

 private:
  explicit Handshake(HandshakeState state)
      : state_(state), is_acceptor_(state == HandshakeState::await_first) {}
  [[nodiscard]] HandshakeStep fail(Error error);
  [[nodiscard]] HandshakeStep refuse(Error error);
  [[nodiscard]] std::string peer_text() const;

  HandshakeState state_;
  bool is_acceptor_;
  HelloReader reader_;
  std::optional<HelloMessage> peer_;
};

}  // namespace tendon::v0::detail
