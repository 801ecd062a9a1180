// SPDX-License-Identifier: Apache-2.0
// Two ends of one link in one thread, with the product's neighbours of a link: a reactor, sinks,
// observers. Every implementation of Link makes such a pair, and the conformance suite runs against
// all of them.
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

/// The smallest possible reactor: an epoll and a table.
class TestReactor final : public Reactor {
 public:
  TestReactor();

  Result<void> watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) override;
  void change(int fd, std::uint32_t events) override;
  void forget(int fd) override;

  /// Hands out all events; waits for the first at most `timeout_ms`. Returns whether there was an
  /// event.
  bool turn(int timeout_ms = 0);
  [[nodiscard]] std::size_t watched_count() const;

 private:
  OwnedFd epoll_;
  mutable std::mutex mutex_;
  std::map<int, std::weak_ptr<FdHandler>> handlers_;
};

/// Bytes to send, cut into parts. It keeps everything that a SendOp points to.
class OutgoingMessage {
 public:
  /// Makes a contiguous payload of `payload_bytes` bytes of a pattern that `seed` decides.
  OutgoingMessage(std::uint32_t pipe, std::uint64_t sequence, std::uint64_t payload_bytes,
                  std::uint64_t seed, std::size_t values_bytes = 0, std::size_t header_bytes = 0);

  /// Cuts the payload into pieces [offset, size). Bytes between the pieces travel as zero.
  void cut(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& pieces);
  /// Sends `tensor`'s elements at `offset` instead of the pattern.
  void put_strided(std::uint64_t offset, const Tensor& tensor);
  /// Overwrites the user's memory: bytes that were not sent yet must not be sent any more.
  void scribble();

  [[nodiscard]] SendOp& op() { return op_; }
  /// Returns the whole body as it must arrive.
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

/// An event of a sink, in order over all sinks that share a log.
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

  /// Returns the whole body of a complete message.
  [[nodiscard]] std::vector<std::byte> body(std::size_t index) const;
  [[nodiscard]] bool complete(std::size_t index) const;
  /// Counts the messages that are complete (not aborted).
  [[nodiscard]] std::size_t complete_count() const;
  void on_device_tried() override { ++tried_count; }
  void drop_bodies() { received.clear(); }

  std::vector<Incoming> received;
  std::vector<Error> failures;
  int tried_count = 0;
  /// Called for every message that could be written straight to its destination.
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

/// One end of a link.
struct LinkEnd {
  std::shared_ptr<Link> link;
  std::shared_ptr<SlotPool> pool;  // tcp: receives bulk; null when the link has its own
  RecordingObserver observer;
  std::map<std::uint32_t, std::shared_ptr<RecordingSink>> sinks;
  std::shared_ptr<EventLog> log = std::make_shared<EventLog>();

  RecordingSink& attach(std::uint32_t pipe);
  bool poll();
};

struct LinkPair {
  // Declared first: links unregister their descriptors in their destructors.
  TestReactor reactor;
  LinkEnd a;
  LinkEnd b;

  void start();
  /// Runs one round of everything. Returns whether anything moved.
  bool turn();
  /// Turns until nothing moves any more.
  void settle();
  /// Sends the whole message, turning meanwhile.
  void send(LinkEnd& from, OutgoingMessage& message);
  template <class Condition>
  [[nodiscard]] bool turn_until(Condition condition) {
    return eventually(condition, [this] {
      if (!turn()) reactor.turn(1);
    });
  }
};

/// Makes links of one implementation.
struct LinkFactory {
  std::string name;
  /// True if frames of several messages alternate, and a message may be withdrawn in its middle.
  bool cuts_frames = false;
  std::function<void(LinkPair&, std::uint64_t cap_bytes)> make;
};
/// Returns the factories of the product: every suite runs over all of them.
std::vector<LinkFactory> links_of_the_product();
inline void PrintTo(const LinkFactory& factory, std::ostream* out) { *out << factory.name; }

LinkFactory tcp_factory(std::string name, int family, int lanes);
/// Makes links over TLS over TCP or unix sockets. `a` is the client, with the first of a pair of
/// credentials. Both renew by `renewed`, or by the same pair; `b` waits for `lanes_to_come` more
/// lanes than there are.
using CredentialPair = std::pair<std::shared_ptr<const secure::Credentials>,
                                 std::shared_ptr<const secure::Credentials>>;
LinkFactory secure_factory(std::string name, int lanes, CredentialPair credentials = {},
                           int family = AF_INET, CredentialPair renewed = {},
                           int lanes_to_come = 0);
/// Makes two ends of TLS whose handshake is done.
std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>> make_secure_streams(
    const CredentialPair& credentials, int family);
/// Returns the credentials of the key `fleet`.
std::shared_ptr<const secure::Credentials> test_credentials(const secure::RenewalLimits& limits);
/// Returns the renewal options of one end of a link with such credentials.
LinkRenewalOptions test_renewals(secure::TlsHandshake::Role role,
                                 std::shared_ptr<const secure::Credentials> credentials, int lanes);
/// Renews every few messages, as often as any test needs.
secure::RenewalLimits renewals_each(std::uint64_t bytes);
/// Makes links over streams in memory: the kernel between the ends only reports readiness.
LinkFactory memory_factory(std::string name, const MemoryStream::Manner& manner, int lanes);
/// `pools`: those of a and of b, for links whose peers take holds.
LinkFactory shm_factory(std::array<std::shared_ptr<PublishPool>, 2> pools = {},
                        CredentialPair credentials = {});

struct SocketPair {
  OwnedFd a;
  OwnedFd b;
};
/// AF_INET: over loopback; AF_UNIX: a socketpair. The sockets do not block.
SocketPair make_sockets(int family);

PeerIdentity test_peer(std::string name);

/// Expects that the link ended once, for a violation by `peer` whose error contains `text`.
void expect_violation(const LinkEnd& end, std::string_view text, std::string_view peer);

}  // namespace tendon::test
