// SPDX-License-Identifier: Apache-2.0
#include "link_pair.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cstring>
#include <random>

#include "tensor/copy.hpp"
#include "transport/shm/shm_link.hpp"
#include "transport/stream/secure_stream.hpp"
#include "transport/stream/socket_stream.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::test {

// Reactor

TestReactor::TestReactor() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Result<void> TestReactor::watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) {
  std::lock_guard lock(mutex_);
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error("test.watch", "epoll_ctl", errno);
  }
  handlers_[fd] = std::move(handler);
  return {};
}

void TestReactor::change(int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event), 0) << strerror(errno);
}

void TestReactor::forget(int fd) {
  std::lock_guard lock(mutex_);
  if (handlers_.erase(fd) == 0) return;  // forgetting it twice is harmless
  EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr), 0) << strerror(errno);
}

bool TestReactor::turn(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count =
      TEMP_FAILURE_RETRY(epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms));
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    std::shared_ptr<FdHandler> handler;
    {
      std::lock_guard lock(mutex_);
      if (const auto found = handlers_.find(event.data.fd); found != handlers_.end())
        handler = found->second.lock();
    }
    if (handler) handler->on_ready(event.data.fd, event.events);
  }
  return count > 0;
}

std::size_t TestReactor::watched_count() const {
  std::lock_guard lock(mutex_);
  return handlers_.size();
}

// Messages

namespace {

void fill(std::vector<std::byte>& bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(random());
}

}  // namespace

OutgoingMessage::OutgoingMessage(std::uint32_t pipe, std::uint64_t sequence,
                                 std::uint64_t payload_bytes, std::uint64_t seed,
                                 std::size_t values_bytes, std::size_t header_bytes)
    : payload_(payload_bytes), values_(values_bytes), header_(header_bytes) {
  fill(payload_, seed);
  fill(values_, seed + 1);
  fill(header_, seed + 2);
  op_.descriptor.kind = MessageKind::bytes;
  op_.descriptor.pipe = pipe;
  op_.descriptor.sequence = sequence;
  op_.descriptor.payload_bytes = payload_bytes;
  op_.descriptor.values_bytes = static_cast<std::uint32_t>(values_bytes);
  op_.descriptor.header_bytes = static_cast<std::uint16_t>(header_bytes);
  op_.values = values_;
  op_.header = header_;
  cut({{0, payload_bytes}});
}

void OutgoingMessage::cut(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& pieces) {
  parts_.clear();
  for (const auto& [offset, size] : pieces) {
    if (size == 0) continue;
    parts_.push_back({offset, Bytes(payload_).subspan(offset, size), nullptr, size});
  }
  use_parts();
}

void OutgoingMessage::put_strided(std::uint64_t offset, const Tensor& tensor) {
  tensors_.push_back(std::make_unique<Tensor>(tensor));
  parts_.push_back({offset, {}, tensors_.back().get(), tensor.size_bytes()});
  use_parts();
}

void OutgoingMessage::use_parts() {
  op_.parts = parts_;
  expected_.assign(payload_.size(), std::byte{0});
  for (const BodyPart& part : parts_) {
    const MutableBytes place = MutableBytes(expected_).subspan(part.offset, part.size_bytes);
    if (part.strided != nullptr)
      gather(*part.strided, place);
    else
      std::memcpy(place.data(), part.bytes.data(), place.size());
  }
  expected_.insert(expected_.end(), values_.begin(), values_.end());
  expected_.insert(expected_.end(), header_.begin(), header_.end());
}

void OutgoingMessage::scribble() {
  for (auto* bytes : {&payload_, &values_, &header_})
    std::fill(bytes->begin(), bytes->end(), std::byte{0xee});
}

// Sinks

std::ostream& operator<<(std::ostream& out, const Event& event) {
  constexpr std::array<const char*, 4> kNames{"message", "complete", "aborted", "failed"};
  return out << kNames[static_cast<std::size_t>(event.kind)] << " " << event.pipe << "/"
             << event.sequence;
}

void RecordingSink::on_message(Incoming&& incoming) {
  log_->push_back({Event::Kind::message, pipe_, incoming.descriptor.sequence});
  if (incoming.transfer == nullptr) {
    log_->push_back({Event::Kind::complete, pipe_, incoming.descriptor.sequence});
  }
  received.push_back(std::move(incoming));
}

bool RecordingSink::claim_destination(const Descriptor& descriptor,
                                      std::vector<MutableBytes>& destination) {
  if (!claim) return false;
  const std::vector<MutableBytes> pieces = claim(descriptor);
  if (pieces.empty()) return false;
  destination.assign(pieces.begin(), pieces.end());
  return true;
}

void RecordingSink::on_transfer_ended(const Transfer& transfer) {
  EXPECT_NE(transfer.complete, transfer.aborted);
  log_->push_back({transfer.complete ? Event::Kind::complete : Event::Kind::aborted, pipe_,
                   transfer.descriptor.sequence});
  if (!transfer.complete || transfer.body.place != IncomingBody::Place::claimed) return;
  std::vector<std::byte>& body = claimed_[transfer.descriptor.sequence];
  for (const MutableBytes piece : transfer.claimed)
    body.insert(body.end(), piece.begin(), piece.end());
  const std::uint64_t rest = transfer.descriptor.body_bytes() - transfer.descriptor.payload_bytes;
  body.insert(body.end(), transfer.body.data, transfer.body.data + rest);
}

void RecordingSink::on_link_failed(const Error& error) {
  log_->push_back({Event::Kind::failed, pipe_, 0});
  failures.push_back(error);
}

std::vector<std::byte> RecordingSink::body(std::size_t index) const {
  const Incoming& incoming = received.at(index);
  if (incoming.place() == IncomingBody::Place::claimed) {
    return claimed_.at(incoming.descriptor.sequence);
  }
  const IncomingBody& body = incoming.transfer != nullptr ? incoming.transfer->body : incoming.body;
  return {body.data, body.data + incoming.descriptor.body_bytes()};
}

bool RecordingSink::complete(std::size_t index) const {
  const Incoming& incoming = received.at(index);
  return incoming.transfer == nullptr || incoming.transfer->complete;
}

std::size_t RecordingSink::complete_count() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < received.size(); ++i) count += complete(i) ? 1 : 0;
  return count;
}

void RecordingObserver::on_open(Link&, const Descriptor& descriptor, Bytes ticket) {
  opened.emplace_back(descriptor.pipe, std::string(as_text(ticket)));
}

void RecordingObserver::on_ended(Link&, const Error* ended_with) {
  ++ended_count;
  if (ended_with != nullptr) error = *ended_with;
}

// Pairs

RecordingSink& LinkEnd::attach(std::uint32_t pipe) {
  auto& sink = sinks[pipe];
  sink = std::make_shared<RecordingSink>(pipe, log);
  std::lock_guard lock(link->receive_mutex());
  link->attach(pipe, sink);
  return *sink;
}

bool LinkEnd::poll() {
  std::lock_guard lock(link->receive_mutex());
  return link->poll();
}

void LinkPair::start() {
  for (LinkEnd* end : {&a, &b}) {
    const auto started = end->link->start(reactor, end->observer);
    ASSERT_TRUE(succeeds(started));
  }
}

bool LinkPair::turn() {
  bool moved = a.poll();
  moved |= b.poll();
  moved |= reactor.turn();
  return moved;
}

void LinkPair::settle() {
  while (turn()) {
  }
}

void LinkPair::send(LinkEnd& from, OutgoingMessage& message) {
  const bool sent = eventually(
      [&] {
        const auto done = from.link->send(message.op(), Deadline::never());
        EXPECT_TRUE(succeeds(done));
        return !done || *done == Sent::done;
      },
      [&] {
        if (!turn()) reactor.turn(1);
      });
  ASSERT_TRUE(sent) << "the message was not sent";
}

PeerIdentity test_peer(std::string name) {
  PeerIdentity peer;
  peer.name = std::move(name);
  peer.host = "here";
  peer.pid = 1;
  return peer;
}

void expect_violation(const LinkEnd& end, std::string_view text, std::string_view peer) {
  const std::optional<Error>& error = end.observer.error;
  ASSERT_TRUE(error.has_value()) << "the link goes on; expected: " << text;
  EXPECT_EQ(error->code, ErrorCode::protocol_violation) << error->message();
  EXPECT_NE(error->detail.find(text), std::string::npos)
      << "'" << text << "' is not in: " << error->detail;
  EXPECT_NE(error->detail.find(peer), std::string::npos) << error->detail;
  EXPECT_EQ(end.observer.ended_count, 1);
}

SocketPair make_sockets(int family) {
  std::array<int, 2> fds{-1, -1};
  if (family == AF_UNIX) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    return {OwnedFd(fds[0]), OwnedFd(fds[1])};
  }
  const OwnedFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(listener.get(), generic, length), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &length), 0);
  OwnedFd a(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(a.get(), generic, length), 0);
  OwnedFd b(TEMP_FAILURE_RETRY(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  EXPECT_GE(b.get(), 0);
  for (const int fd : {a.get(), b.get()}) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return {std::move(a), std::move(b)};
}

namespace {

using StreamPair = std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>>;

using Role = secure::TlsHandshake::Role;
using RenewalPair = std::pair<LinkRenewalOptions, LinkRenewalOptions>;

std::unique_ptr<ByteStream> secured(OwnedFd socket, Role role,
                                    std::shared_ptr<const secure::Credentials> credentials) {
  SecureStreamOptions options{.role = role, .credentials = std::move(credentials)};
  return SecureStream::make(std::make_unique<SocketStream>(std::move(socket)), std::move(options))
      .value();
}

void make_stream_links(LinkPair& pair, std::uint64_t cap_bytes, int lanes,
                       const std::function<StreamPair()>& make_streams, RenewalPair renewals = {}) {
  const auto make = [&](LinkEnd& end, std::unique_ptr<ByteStream> control, const char* peer,
                        LinkRenewalOptions renewal) {
    end.pool = std::make_shared<SlotPool>("test pool", cap_bytes);
    StreamLinkOptions options;
    options.path = {PathKind::tcp, "a test asked for it"};
    options.peer = test_peer(peer);
    options.cap_bytes = options.peer_cap_bytes = cap_bytes;
    options.control = std::move(control);
    // A peer here reads only when the test says so, and the kernel must not end its connection for
    // that.
    options.lease = std::chrono::minutes(10);
    options.pool = end.pool;
    options.renewal = std::move(renewal);
    end.link = make_stream_link(std::move(options)).value();
  };
  StreamPair control = make_streams();
  make(pair.a, std::move(control.first), "b", std::move(renewals.first));
  make(pair.b, std::move(control.second), "a", std::move(renewals.second));
  pair.start();
  for (int lane = 0; lane < lanes; ++lane) {
    StreamPair bulk = make_streams();
    ASSERT_TRUE(succeeds(static_cast<StreamLink&>(*pair.a.link).add_lane(std::move(bulk.first))));
    ASSERT_TRUE(succeeds(static_cast<StreamLink&>(*pair.b.link).add_lane(std::move(bulk.second))));
  }
}

}  // namespace

LinkFactory tcp_factory(std::string name, int family, int lanes) {
  LinkFactory factory;
  factory.name = std::move(name);
  factory.cuts_frames = true;
  factory.make = [family, lanes](LinkPair& pair, std::uint64_t cap_bytes) {
    make_stream_links(pair, cap_bytes, lanes, [family] {
      SocketPair sockets = make_sockets(family);
      return StreamPair(std::make_unique<SocketStream>(std::move(sockets.a)),
                        std::make_unique<SocketStream>(std::move(sockets.b)));
    });
  };
  return factory;
}

std::shared_ptr<const secure::Credentials> test_credentials(const secure::RenewalLimits& limits) {
  secure::CredentialParts parts;
  parts.keys.push_back({"fleet", SecretBytes(kSharedKeyBytes), {}});
  parts.rotation.renewal = limits;
  return secure::Credentials::make(std::move(parts)).value();
}

LinkRenewalOptions test_renewals(Role role, std::shared_ptr<const secure::Credentials> credentials,
                                 int lanes) {
  LinkRenewalOptions options;
  options.terms.role = role;
  if (credentials != nullptr)
    options.terms.credential = key_id(*credentials->find_key("fleet")).value();
  options.terms.credentials = std::move(credentials);
  options.terms.own_identity = options.terms.identity = "key:fleet";
  options.lanes = static_cast<std::uint32_t>(lanes);
  return options;
}

secure::RenewalLimits renewals_each(std::uint64_t bytes) {
  secure::RenewalLimits limits;
  limits.bytes = bytes;
  limits.starts = 1'000'000;
  return limits;
}

StreamPair make_secure_streams(const CredentialPair& credentials, int family) {
  SocketPair sockets = make_sockets(family);
  StreamPair streams(secured(std::move(sockets.a), Role::client, credentials.first),
                     secured(std::move(sockets.b), Role::server, credentials.second));
  // Links begin when their handshake is done.
  EXPECT_TRUE(eventually([&] {
    (void)streams.first->write({});
    (void)streams.second->write({});
    return streams.first->session() != nullptr && streams.second->session() != nullptr;
  }));
  return streams;
}

LinkFactory secure_factory(std::string name, int lanes, CredentialPair credentials, int family,
                           CredentialPair renewed, int lanes_to_come) {
  if (credentials.first == nullptr) credentials.first = test_credentials({});
  if (credentials.second == nullptr) credentials.second = credentials.first;
  if (renewed.first == nullptr) renewed = credentials;
  LinkFactory factory;
  factory.name = std::move(name);
  factory.cuts_frames = true;
  factory.make = [=](LinkPair& pair, std::uint64_t cap_bytes) {
    const auto make_streams = [&] { return make_secure_streams(credentials, family); };
    make_stream_links(pair, cap_bytes, lanes, make_streams,
                      {test_renewals(Role::client, renewed.first, lanes),
                       test_renewals(Role::server, renewed.second, lanes + lanes_to_come)});
  };
  return factory;
}

LinkFactory memory_factory(std::string name, const MemoryStream::Manner& manner, int lanes) {
  LinkFactory factory;
  factory.name = std::move(name);
  factory.cuts_frames = true;
  factory.make = [manner, lanes](LinkPair& pair, std::uint64_t cap_bytes) {
    make_stream_links(pair, cap_bytes, lanes, [manner]() -> StreamPair {
      auto streams = MemoryStream::make_pair(manner);
      return {std::move(streams.first), std::move(streams.second)};
    });
  };
  return factory;
}

LinkFactory shm_factory(std::array<std::shared_ptr<PublishPool>, 2> pools,
                        CredentialPair credentials) {
  LinkFactory factory;
  factory.name = "shm";
  factory.make = [pools, credentials](LinkPair& pair, std::uint64_t cap_bytes) {
    SocketPair sockets = make_sockets(AF_UNIX);
    const Nonce128 nonce_a = random_nonce().value();
    const Nonce128 nonce_b = random_nonce().value();
    const auto block_a = make_control_segment(nonce_a).value();
    const auto block_b = make_control_segment(nonce_b).value();
    auto make = [&](LinkEnd& end, OwnedFd socket, const std::shared_ptr<Segment>& mine,
                    const std::shared_ptr<Segment>& theirs, const Nonce128& nonce, const char* peer,
                    const std::shared_ptr<PublishPool>& pool, LinkRenewalOptions renewal) {
      ShmLinkOptions options;
      options.path = {PathKind::shm, "a test asked for it"};
      options.peer = test_peer(peer);
      options.cap_bytes = options.peer_cap_bytes = cap_bytes;
      options.socket = std::move(socket);
      options.mine = mine;
      options.theirs = attach_control_segment(OwnedFd(dup(theirs->fd())), nonce).value();
      options.peer_doorbell = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      options.peer_process = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
      options.publish_pool = pool;
      options.renewal = std::move(renewal);
      end.link = make_shm_link(std::move(options)).value();
    };
    make(pair.a, std::move(sockets.a), block_a, block_b, nonce_b, "b", pools[0],
         test_renewals(Role::client, credentials.first, 0));
    make(pair.b, std::move(sockets.b), block_b, block_a, nonce_a, "a", pools[1],
         test_renewals(Role::server, credentials.second, 0));
    pair.start();
  };
  return factory;
}

std::vector<LinkFactory> links_of_the_product() {
  return {tcp_factory("tcp", AF_INET, 1),
          tcp_factory("tcp_3_lanes", AF_INET, 3),
          tcp_factory("unix", AF_UNIX, 1),
          tcp_factory("unix_2_lanes", AF_UNIX, 2),
          tcp_factory("unix_3_lanes", AF_UNIX, 3),
          secure_factory("tls", 2),
          shm_factory()};
}

}  // namespace tendon::test
