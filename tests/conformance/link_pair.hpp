// SPDX-License-Identifier: Apache-2.0
// Two ends of one link in one thread, and what stands above and below them in the product: a
// reactor, sinks, observers. Every implementation of Link makes such a pair; the conformance suite
// runs against all of them.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fd.hpp"
#include "support/expect.hpp"
#include "support/memory_stream.hpp"
#include "transport/link.hpp"
#include "transport/link_renewal.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::test {

using namespace detail;

/// The smallest core: an epoll and a table.
class TestReactor final : public Reactor {
 public:
  TestReactor();

  Result<void> watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) override;
  void change(int fd, std::uint32_t events) override;
  void forget(int fd) override;

  /// Hands out the events there are; waits for one at most `timeout_ms`. Returns whether there was
  /// one.
  bool turn(int timeout_ms = 0);
  [[nodiscard]] std::size_t watched_count() const;

 private:
  OwnedFd epoll_;
  mutable std::mutex mutex_;
  std::map<int, std::weak_ptr<FdHandler>> handlers_;
};

/// Bytes to send, cut into parts. Keeps everything a SendOp points to.
class OutgoingMessage {
 public:
  /// Contiguous payload of `payload_bytes` bytes of a pattern that `seed` decides.
  OutgoingMessage(std::uint32_t pipe, std::uint64_t sequence, std::uint64_t payload_bytes,
                  std::uint64_t seed, std::size_t values_bytes = 0, std::size_t header_bytes = 0);

  /// Cuts the payload into pieces [offset, size), with gaps where they leave bytes out: those
  /// travel as zero.
  void cut(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& pieces);
  /// Sends `tensor`'s elements at `offset` instead of the pattern.
  void put_strided(std::uint64_t offset, const Tensor& tensor);
  /// Overwrites the user's memory: what was not sent yet must not be sent any more.
  void scribble();

  [[nodiscard]] SendOp& op() { return op_; }
  /// The whole body as it must arrive.
  [[nodiscard]] const std::vector<std::byte>& expected() const { return expected_; }

 private:
  void use_parts();

  std::vector<std::byte> payload_;
  std::vector<std::byte> values_;
  std::vector<std::byte> header_;
  std::vector<BodyPart> parts_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::vector<std::byte> expected_;
  SendOp op_;
};

/// What a sink heard, in order over all sinks that share a log.
struct Event {
  enum class Kind : std::uint8_t { message, complete, aborted, failed };
  Kind kind;
  std::uint32_t pipe = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const Event&, const Event&) = default;
};
std::ostream& operator<<(std::ostream& out, const Event& event);
using EventLog = std::vector<Event>;

class RecordingSink final : public MessageSink {
 public:
  RecordingSink(std::uint32_t pipe, std::shared_ptr<EventLog> log)
      : pipe_(pipe), log_(std::move(log)) {}

  void on_message(Incoming&& incoming) override;
  bool admits(const Descriptor&) override { return true; }
  bool claim_destination(const Descriptor& descriptor,
                         std::vector<MutableBytes>& destination) override;
  void on_transfer_ended(const Transfer& transfer) override;
  void on_link_failed(const Error& error) override;

  /// The whole body of a complete message.
  [[nodiscard]] std::vector<std::byte> body(std::size_t index) const;
  [[nodiscard]] bool complete(std::size_t index) const;
  /// How many messages are complete (not aborted).
  [[nodiscard]] std::size_t complete_count() const;
  void on_device_tried() override { ++tried_count; }
  void drop_bodies() { received.clear(); }

  std::vector<Incoming> received;
  std::vector<Error> failures;
  int tried_count = 0;
  /// Asked for every message that could be written straight to its destination.
  std::function<std::vector<MutableBytes>(const Descriptor&)> claim;

 private:
  const std::uint32_t pipe_;
  const std::shared_ptr<EventLog> log_;
  std::map<std::uint64_t, std::vector<std::byte>> claimed_;  // copied when they were complete
};

class RecordingObserver final : public LinkObserver {
 public:
  void on_open(Link& link, const Descriptor& descriptor, Bytes ticket) override;
  void on_ended(Link& link, const Error* error) override;

  std::vector<std::pair<std::uint32_t, std::string>> opened;
  int ended_count = 0;
  std::optional<Error> error;
};

/// One end.
struct LinkEnd {
  std::shared_ptr<Link> link;
  std::shared_ptr<SlotPool> pool;  // tcp: where bulk arrives; null when the link has its own
  RecordingObserver observer;
  std::map<std::uint32_t, std::shared_ptr<RecordingSink>> sinks;
  std::shared_ptr<EventLog> log = std::make_shared<EventLog>();

  RecordingSink& attach(std::uint32_t pipe);
  bool poll();
};

struct LinkPair {
  // Declared first: links forget their descriptors when they go.
  TestReactor reactor;
  LinkEnd a;
  LinkEnd b;

  void start();
  /// One round of everything. Returns whether anything moved.
  bool turn();
  /// Turns until nothing moves any more.
  void settle();
  /// Sends to the end, turning meanwhile.
  void send(LinkEnd& from, OutgoingMessage& message);
  template <class Condition>
  [[nodiscard]] bool turn_until(Condition condition) {
    return eventually(condition, [this] {
      if (!turn()) reactor.turn(1);
    });
  }
};

/// How one implementation is made.
struct LinkFactory {
  std::string name;
  /// Frames of several messages alternate, and a message may be taken back in its middle.
  bool cuts_frames = false;
  std::function<void(LinkPair&, std::uint64_t cap_bytes)> make;
};
/// Those of the product: every suite runs over all of them.
std::vector<LinkFactory> links_of_the_product();
inline void PrintTo(const LinkFactory& factory, std::ostream* out) { *out << factory.name; }

LinkFactory tcp_factory(std::string name, int family, int lanes);
/// TLS over TCP, or unix sockets. `a` is the client, with the first of a pair of credentials. Both
/// renew by `renewed`, or by the same; `b` waits for more lanes than there are.
using CredentialPair = std::pair<std::shared_ptr<const secure::Credentials>,
                                 std::shared_ptr<const secure::Credentials>>;
LinkFactory secure_factory(std::string name, int lanes, CredentialPair credentials = {},
                           int family = AF_INET, CredentialPair renewed = {},
                           int lanes_to_come = 0);
/// Two ends of TLS whose handshake is done.
std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>> make_secure_streams(
    const CredentialPair& credentials, int family);
/// Those of `fleet`.
std::shared_ptr<const secure::Credentials> test_credentials(const secure::RenewalLimits& limits);
/// How one end of a link with such credentials renews.
LinkRenewalOptions test_renewals(secure::TlsHandshake::Role role,
                                 std::shared_ptr<const secure::Credentials> credentials, int lanes);
/// A renewal each few messages, as often as any test needs.
secure::RenewalLimits renewals_each(std::uint64_t bytes);
/// Over streams in memory: no kernel between the ends but for readiness.
LinkFactory memory_factory(std::string name, const MemoryStream::Manner& manner, int lanes);
/// `pools`: of a and of b, for links whose peers take holds.
LinkFactory shm_factory(std::array<std::shared_ptr<PublishPool>, 2> pools = {},
                        CredentialPair credentials = {});

struct SocketPair {
  OwnedFd a;
  OwnedFd b;
};
/// AF_INET: over loopback; AF_UNIX: a socketpair. Not blocking.
SocketPair make_sockets(int family);

PeerIdentity test_peer(std::string name);

/// The link ended once, for a violation by `peer` in whose words is `text`.
void expect_violation(const LinkEnd& end, std::string_view text, std::string_view peer);

}  // namespace tendon::test
