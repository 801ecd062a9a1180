// SPDX-License-Identifier: Apache-2.0
// A peer over sockets that makes an arbitrary handshake and then writes descriptors by hand.
#pragma once

#include <sys/time.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/session/limits.hpp>
#include <vector>

#include "session/hello.hpp"
#include "support/expect.hpp"
#include "support/raw_socket.hpp"
#include "transport/descriptor.hpp"

namespace tendon::test {

/// The claims of a raw peer about itself.
inline detail::HelloMessage claims(std::int64_t pid = 4242) {
  detail::HelloMessage hello;
  hello.kind = detail::HelloKind::hello;
  hello.profile = Profile::plaintext;
  hello.context_id.bytes = detail::random_nonce().value();
  hello.incarnation = 1;
  hello.pid = pid;
  hello.uid = 12345;
  hello.host = "elsewhere";
  hello.name = "stranger";
  hello.progress = detail::ProgressMode::manual;
  hello.limits = detail::LinkLimits{.link_cap_bytes = std::uint64_t{1} << 30,
                                    .window_messages = kPipeWindowMessages,
                                    .window_bytes = kPipeWindowBytes,
                                    .max_leaves = 65536,
                                    .streams = 1};
  return hello;
}

/// A connection that carries frames of the handshake and descriptors.
class RawWire {
 public:
  explicit RawWire(detail::OwnedFd fd) : fd_(std::move(fd)) {
    const timeval patience{kPatience.count(), 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  [[nodiscard]] int fd() const { return fd_.get(); }

  void say(const detail::HelloMessage& message) {
    const auto frame = encode(message);
    send_all(fd(), {reinterpret_cast<const char*>(frame.data()), frame.size()});
  }
  /// Returns the next frame; nothing if the peer hung up.
  std::optional<detail::HelloMessage> hear() {
    std::vector<std::byte> frame(16);
    if (!read(frame.data(), frame.size())) return std::nullopt;
    std::uint32_t rest = 0;
    std::memcpy(&rest, frame.data() + 12, sizeof rest);
    frame.resize(16 + rest);
    if (!read(frame.data() + 16, rest)) return std::nullopt;
    return detail::decode(Bytes(frame)).value();
  }

  void post(const detail::Descriptor& descriptor, std::string_view body) {
    std::string bytes(sizeof descriptor, '\0');
    std::memcpy(bytes.data(), &descriptor, sizeof descriptor);
    send_all(fd(), bytes.append(body));
  }
  /// Sends an `open` with this ticket and the fields of `descriptor`.
  void open(detail::Descriptor descriptor, const detail::Nonce128& ticket) {
    descriptor.flags = detail::Descriptor::kInline;
    descriptor.segment_or_inline_bytes = sizeof ticket;
    post(descriptor, {reinterpret_cast<const char*>(ticket.data()), ticket.size()});
  }
  void open(std::uint32_t pipe, const detail::Nonce128& ticket) {
    detail::Descriptor descriptor;
    descriptor.kind = detail::MessageKind::open;
    descriptor.pipe = pipe;
    descriptor.header_bytes = sizeof ticket;
    open(descriptor, ticket);
  }
  void send_bytes(std::uint32_t pipe, std::uint64_t sequence, std::string_view text) {
    detail::Descriptor descriptor;
    descriptor.kind = detail::MessageKind::bytes;
    descriptor.flags = detail::Descriptor::kInline;
    descriptor.pipe = pipe;
    descriptor.sequence = sequence;
    descriptor.payload_bytes = text.size();
    descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(text.size());
    post(descriptor, text);
  }

  struct Said {
    detail::Descriptor descriptor;
    std::string body;
  };
  /// Returns the next message, except signs of life; nothing if the peer hung up or fell silent.
  std::optional<Said> next() {
    // Signs of life arrive without end.
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      Said said;
      if (!read(&said.descriptor, sizeof said.descriptor)) return std::nullopt;
      said.body.resize(said.descriptor.segment_or_inline_bytes);
      if (!read(said.body.data(), said.body.size())) return std::nullopt;
      if (said.descriptor.kind != detail::MessageKind::ping) return said;
    }
    return std::nullopt;
  }

 private:
  bool read(void* to, std::size_t size) {
    auto* at = static_cast<char*>(to);
    while (size > 0) {
      const ssize_t got = recv(fd(), at, size, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }
  detail::OwnedFd fd_;
};

/// Connects, and exchanges hellos.
class RawClient : public RawWire {
 public:
  RawClient(std::string_view address, const detail::HelloMessage& hello)
      : RawWire(connect_raw(address)) {
    say(hello);
    answer = hear();
  }
  /// Chooses sockets and returns the answer; `ready` is success.
  std::optional<detail::HelloMessage> choose(detail::Reuse reuse = detail::Reuse::fresh) {
    detail::HelloMessage path;
    path.kind = detail::HelloKind::path;
    path.path = PathKind::tcp;
    path.reuse = reuse;
    say(path);
    return hear();
  }
  [[nodiscard]] const detail::Nonce128& ticket() const { return answer->ticket; }

  std::optional<detail::HelloMessage> answer;
};

inline testing::AssertionResult is_ready(const std::optional<detail::HelloMessage>& frame) {
  if (frame && frame->kind == detail::HelloKind::ready) return testing::AssertionSuccess();
  return testing::AssertionFailure() << (frame ? "refused: " + frame->reason : "hung up");
}

/// Succeeds for a `reject` with this code whose reason contains each of `texts`.
inline testing::AssertionResult is_refusal(const std::optional<detail::HelloMessage>& frame,
                                           ErrorCode code,
                                           const std::vector<std::string>& texts = {}) {
  if (!frame) return testing::AssertionFailure() << "hung up without a reason";
  if (frame->kind != detail::HelloKind::reject)
    return testing::AssertionFailure() << "no refusal but " << to_string(frame->kind);
  if (frame->error_code != static_cast<std::uint16_t>(code))
    return testing::AssertionFailure() << "code " << frame->error_code << ": " << frame->reason;
  for (const std::string& text : texts)
    if (frame->reason.find(text) == std::string::npos)
      return testing::AssertionFailure() << "the reason lacks '" << text << "': " << frame->reason;
  return testing::AssertionSuccess();
}

/// Succeeds for an `error` on `pipe` with this code that contains each of `texts`.
inline testing::AssertionResult is_error(const std::optional<RawWire::Said>& said,
                                         std::uint32_t pipe, ErrorCode code,
                                         const std::vector<std::string>& texts = {}) {
  if (!said) return testing::AssertionFailure() << "hung up, or silent";
  const detail::Descriptor& descriptor = said->descriptor;
  if (descriptor.kind != detail::MessageKind::error || descriptor.pipe != pipe ||
      descriptor.tag != static_cast<std::uint32_t>(code)) {
    return testing::AssertionFailure()
           << to_string(descriptor.kind) << " on pipe " << descriptor.pipe << ", tag "
           << descriptor.tag << ": " << said->body;
  }
  for (const std::string& text : texts)
    if (said->body.find(text) == std::string::npos)
      return testing::AssertionFailure() << "the text lacks '" << text << "': " << said->body;
  return testing::AssertionSuccess();
}

/// Plays a listener whose links prove nothing: exchanges hellos with every peer that connects.
class RawServer {
 public:
  explicit RawServer(detail::HelloMessage hello = claims()) : hello_(std::move(hello)) {}
  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  [[nodiscard]] detail::OwnedFd accept() const { return listener_.accept(); }
  /// Hears a hello and answers it.
  RawWire meet() {
    RawWire wire(listener_.accept());
    (void)wire.hear();
    detail::HelloMessage answer = hello_;
    answer.ticket = detail::random_nonce().value();
    wire.say(answer);
    return wire;
  }
  /// Answers the next frame, whatever it is, with `ready` and a ticket for a lane.
  static std::optional<detail::HelloMessage> admit(RawWire& wire) {
    auto frame = wire.hear();
    detail::HelloMessage ready;
    ready.kind = detail::HelloKind::ready;
    ready.ticket = detail::random_nonce().value();
    wire.say(ready);
    return frame;
  }
  RawWire lane() {
    RawWire wire(listener_.accept());
    (void)admit(wire);
    return wire;
  }

 private:
  RawListener listener_;
  detail::HelloMessage hello_;
};

}  // namespace tendon::test
