// SPDX-License-Identifier: Apache-2.0
// One tcp link whose peer writes arbitrary bytes.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "link_pair.hpp"
#include "transport/stream/frame.hpp"
#include "transport/stream/socket_stream.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::test {

class RawPeer {
 public:
  static constexpr std::uint64_t kCapBytes = 64ull << 20;

  /// `expected`: bulk lanes that the link waits for. `poll_bytes`: how much the link takes at a
  /// time.
  explicit RawPeer(int lanes = 1, std::vector<std::byte> early = {}, std::uint32_t expected = 0,
                   std::uint64_t poll_bytes = kPollBytes) {
    SocketPair control = make_sockets(AF_UNIX);
    control_ = std::move(control.a);
    end.pool = std::make_shared<SlotPool>("test pool", kCapBytes);
    StreamLinkOptions options;
    options.path = {PathKind::tcp, "a test asked for it"};
    options.peer = test_peer("mallory");
    options.cap_bytes = options.peer_cap_bytes = kCapBytes;
    options.control = std::make_unique<SocketStream>(std::move(control.b));
    options.received_already = std::move(early);
    options.pool = end.pool;
    options.lanes = expected;
    options.poll_bytes = poll_bytes;
    options.lease = std::chrono::seconds(3);
    end.link = make_stream_link(std::move(options)).value();
    const auto started = end.link->start(reactor, end.observer);
    EXPECT_TRUE(succeeds(started));
    for (int lane = 0; lane < lanes; ++lane) add_lane();
  }
  void add_lane() {
    SocketPair bulk = make_sockets(AF_UNIX);
    lanes_.push_back(std::move(bulk.a));
    EXPECT_TRUE(succeeds(static_cast<StreamLink&>(*end.link).add_lane(
        std::make_unique<SocketStream>(std::move(bulk.b)))));
  }

  /// Writes all bytes, turning the link meanwhile. False if the link closed the connection.
  bool control(Bytes bytes) { return write(control_.get(), bytes); }
  bool bulk(Bytes bytes, std::size_t lane = 0) { return write(lanes_.at(lane).get(), bytes); }
  bool control(const Descriptor& descriptor) {
    return control(std::as_bytes(std::span(&descriptor, 1)));
  }
  bool frame(const FrameHeader& header, Bytes bytes, std::size_t lane = 0) {
    return bulk(std::as_bytes(std::span(&header, 1)), lane) && bulk(bytes, lane);
  }
  void close_control() { control_.reset(); }
  void close_lane(std::size_t lane) { lanes_.at(lane).reset(); }
  [[nodiscard]] int control_fd() const { return control_.get(); }
  [[nodiscard]] int lane_fd(std::size_t lane) const { return lanes_.at(lane).get(); }

  void settle() {
    while (reactor.turn()) {
    }
    end.poll();
  }
  /// Returns everything that the link has said to this peer so far.
  [[nodiscard]] const std::vector<Descriptor>& heard() {
    Descriptor descriptor;
    while (recv(control_.get(), &descriptor, sizeof descriptor, MSG_DONTWAIT) ==
           static_cast<ssize_t>(sizeof descriptor)) {
      heard_.push_back(descriptor);
    }
    return heard_;
  }
  [[nodiscard]] const std::optional<Error>& error() const { return end.observer.error; }

  TestReactor reactor;
  LinkEnd end;

 private:
  bool write(int fd, Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0)
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
      else if (errno != EAGAIN)
        return false;
      if (!bytes.empty() && !reactor.turn(1) && end.link->ended()) return false;
    }
    return true;
  }

  OwnedFd control_;
  std::vector<OwnedFd> lanes_;
  std::vector<Descriptor> heard_;
};

inline Descriptor bulk_message(std::uint32_t pipe, std::uint64_t sequence,
                               std::uint64_t payload_bytes) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = pipe;
  descriptor.sequence = sequence;
  descriptor.payload_bytes = payload_bytes;
  return descriptor;
}

inline FrameHeader frame_of(const Descriptor& message, std::uint64_t offset) {
  FrameHeader header;
  header.pipe = message.pipe;
  header.sequence = message.sequence;
  header.offset = offset;
  header.length_bytes = FrameCut{message.body_bytes()}.length_at(offset);
  return header;
}

}  // namespace tendon::test
