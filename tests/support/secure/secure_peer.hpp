// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/begun_connection.hpp"
#include "runtime/handshake_stream.hpp"
#include "session/resolve.hpp"
#include "support/expect.hpp"
#include "support/raw_client.hpp"
#include "transport/stream/secure_stream.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {

/// A peer of a secure listener that sends arbitrary messages in its handshake.
class SecurePeer {
 public:
  SecurePeer(std::string_view address, std::shared_ptr<const detail::secure::Credentials> own,
             detail::secure::TlsHandshakeOptions handshake = {})
      : stream_(open(address, std::move(own), std::move(handshake)),
                detail::Handshake::connector()) {}
  /// Makes a lane of the session that the control lane has.
  SecurePeer(std::string_view address, std::shared_ptr<const detail::secure::Credentials> own,
             const detail::secure::TlsSession& session)
      : SecurePeer(address, std::move(own),
                   {.session_id = session.id, .session_key = session.lane_key.bytes()}) {}

  /// Sends a message, and waits for the answer or the refusal.
  [[nodiscard]] detail::HandshakeStep ask(const detail::HelloMessage& question) {
    detail::HandshakeStep step = stream_.reply(question);
    EXPECT_TRUE(eventually([&] {
      if (step.next == detail::Next::read) step = stream_.advance();
      return step.next != detail::Next::read;
    }));
    return step;
  }
  /// Says hello, chooses sockets and returns the ticket for the lanes.
  [[nodiscard]] detail::Nonce128 make_link(const detail::HelloMessage& hello) {
    const auto answer = ask(hello);
    EXPECT_TRUE(answer.message) << answer.error.value_or(Error{}).detail;
    if (!answer.message) return {};
    detail::HelloMessage path;
    path.kind = detail::HelloKind::path;
    path.path = PathKind::tcp;
    const auto ready = ask(path);
    EXPECT_TRUE(ready.message) << ready.error.value_or(Error{}).detail;
    return ready.message ? ready.message->ticket : detail::Nonce128{};
  }
  /// Returns the session of the control lane, or of the lane.
  [[nodiscard]] const detail::secure::TlsSession& session() const {
    return *stream_.stream()->session();
  }
  [[nodiscard]] detail::ByteStream& stream() { return *stream_.stream(); }

 private:
  static std::unique_ptr<detail::ByteStream> open(
      std::string_view address, std::shared_ptr<const detail::secure::Credentials> own,
      detail::secure::TlsHandshakeOptions handshake) {
    const auto place = Address::parse(address).value();
    const auto found = resolve(place, kPatience, detail::ResolveFor::connect).value();
    auto socket = std::make_unique<detail::SocketStream>(
        detail::begin_connection(found.front(), "test").value());
    return detail::SecureStream::make(std::move(socket),
                                      {.role = detail::secure::TlsHandshake::Role::client,
                                       .credentials = std::move(own),
                                       .handshake = std::move(handshake)})
        .value();
  }

  detail::HandshakeStream stream_;
};

/// The claims of a SecurePeer.
inline detail::HelloMessage secure_claims() {
  detail::HelloMessage hello = claims();
  hello.profile = Profile::secure;
  return hello;
}

/// The message of a lane of the link that this peer has made.
inline detail::HelloMessage lane_of(const detail::HelloMessage& hello,
                                    const detail::Nonce128& ticket, std::uint32_t index) {
  detail::HelloMessage lane;
  lane.kind = detail::HelloKind::lane;
  lane.context_id = hello.context_id;
  lane.ticket = ticket;
  lane.lane_index = index;
  return lane;
}

inline testing::AssertionResult is_refused(const detail::HandshakeStep& step, ErrorCode code,
                                           std::string_view text) {
  if (!step.error) return testing::AssertionFailure() << "answered";
  return fails_with(Result<void>(*step.error), code, text);
}

}  // namespace tendon::test
