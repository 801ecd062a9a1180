// SPDX-License-Identifier: Apache-2.0
// The cost that strangers at a listener may cause before they are known.
#include "runtime/acceptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "session/hello.hpp"
#include "session/resolve.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"
#include "support/sanitizer.hpp"
#include "support/sleeping_thread.hpp"

namespace tendon::test {
namespace {

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

std::string abstract_name() { return "@tendon-acceptor-" + std::to_string(getpid()); }

detail::OwnedFd connect_unix(const std::string& name) {
  detail::OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(TEMP_FAILURE_RETRY(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size)), 0);
  return fd;
}

TEST(AcceptorLimits, AtMostSixteenConnectionsAreTakenInOneEvent) {
  Context context = Context::create({.progress = Progress::manual}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  std::vector<detail::OwnedFd> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(connect_raw(listener.address()));
  const std::size_t before = open_descriptors();
  while (context.progress() && open_descriptors() == before) continue;
  EXPECT_EQ(open_descriptors() - before, 16u);
  EXPECT_TRUE(
      eventually([&] { return open_descriptors() - before == 40; }, [&] { context.progress(); }));
}

// Uses up the time of one turn.
class Busy final : public detail::FdHandler {
 public:
  void on_ready(int fd, std::uint32_t) override {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun <= detail::TurnQueue::kMostTime) continue;
    eventfd_t all = 0;
    eventfd_read(fd, &all);
  }
};

// A hello costs as much as a handshake, most of all with TLS, so links are served first.
TEST(AcceptorLimits, HellosAreReadInTurns) {
  Context context = Context::create({.progress = Progress::manual}).value();
  Listener listener =
      Listener::bind(context, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  const auto busy = std::make_shared<Busy>();
  const detail::OwnedFd begins(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto& loop = detail::ContextCore::of(context)->loop();
  ASSERT_TRUE(succeeds(loop.watch_in_turns(begins.get(), EPOLLIN, busy)));
  const std::size_t before = open_descriptors();
  RawWire stranger(connect_raw(listener.address()));
  // Waits for its own descriptor and for that of the listener's side.
  ASSERT_TRUE(
      eventually([&] { return open_descriptors() == before + 2; }, [&] { context.progress(); }));
  eventfd_write(begins.get(), 1);
  stranger.say(claims());
  context.progress();
  char byte = 0;
  EXPECT_EQ(recv(stranger.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
  EXPECT_TRUE(
      eventually([&] { return recv(stranger.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1; },
                 [&] { context.progress(); }));
  loop.forget(begins.get());
}

TEST(AcceptorLimits, DescriptorsBesideAHelloEndTheHandshake) {
  Context context = Context::create({}).value();
  Listener listener = Listener::bind(context, "unix:" + abstract_name()).value();
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const detail::OwnedFd reader(ends[0]);
  detail::OwnedFd writer(ends[1]);
  const auto frame = encode(claims());
  const std::string hello(reinterpret_cast<const char*>(frame.data()), frame.size());
  for (const std::size_t each : {4u, 1u}) {
    RawWire stranger(connect_unix(abstract_name()));
    send_descriptors(stranger.fd(), hello.substr(0, 1), writer.get(), each);
    send_all(stranger.fd(), hello.substr(1));
    EXPECT_FALSE(stranger.hear()) << "answered one that passed " << each;
  }
  writer.reset();
  char byte = 0;
  EXPECT_EQ(TEMP_FAILURE_RETRY(read(reader.get(), &byte, 1)), 0)
      << "every one of them is closed again";
}

TEST(AcceptorLimits, AnotherUserOfAUnixSocketIsRefusedBeforeItSaysAnything) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Context context = Context::create({}).value();
  Listener listener = Listener::bind(context, "unix:" + abstract_name()).value();
  std::thread stranger([&] {
    // The raw system call affects this thread only.
    ASSERT_EQ(syscall(SYS_setresuid, 65534, 65534, 65534), 0);
    RawWire wire(connect_unix(abstract_name()));
    EXPECT_TRUE(is_refusal(wire.hear(), ErrorCode::permission_denied, {"uid"}));
    EXPECT_FALSE(wire.hear());
  });
  stranger.join();
}

// More than any table of a listener should hold; a sanitizer is too slow for that many.
constexpr int kFloodOfHellos = TENDON_SANITIZED ? 1000 : 6000;

/// A listener, an honest peer of it, and hostile connections.
class CrowdedDoor : public testing::Test {
 protected:
  /// Sends a hello, reads the answer, and closes.
  void discard_hello() { EXPECT_TRUE(RawClient(listener_.address(), claims()).answer); }
  /// Connections that have sent a hello, received the answer, and then stall.
  [[nodiscard]] std::vector<std::unique_ptr<RawClient>> stall(std::size_t count) {
    std::vector<std::unique_ptr<RawClient>> stalled;
    while (stalled.size() < count)
      stalled.push_back(std::make_unique<RawClient>(listener_.address(), claims()));
    return stalled;
  }
  [[nodiscard]] std::vector<detail::OwnedFd> silent(std::size_t count) {
    std::vector<detail::OwnedFd> connections;
    while (connections.size() < count) connections.push_back(connect_raw(listener_.address()));
    return connections;
  }
  void an_honest_peer_comes_through(Context& client) {
    auto from = Pipe::connect(client, listener_.address(), kPatience);
    ASSERT_TRUE(succeeds(from));
    auto to = listener_.accept(kPatience);
    ASSERT_TRUE(succeeds(to));
    ASSERT_TRUE(succeeds(from->send(numbered(7), kPatience)));
    EXPECT_EQ(number_of(to->recv(kPatience).value()), 7);
  }
  Context server_ = Context::create({.name = "server"}).value();
  Listener listener_ =
      Listener::bind(server_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
};

TEST_F(CrowdedDoor, DiscardedHellosTakeNobodysTicket) {
  for (int i = 0; i < kFloodOfHellos; ++i) discard_hello();
  std::vector<std::unique_ptr<RawClient>> links;
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    links.push_back(std::make_unique<RawClient>(listener_.address(), claims()));
    for (int other = 0; other < 5; ++other) discard_hello();
    RawClient& link = *links.back();
    ASSERT_TRUE(is_ready(link.choose()));
    link.open(1, link.ticket());
    link.send_bytes(1, 1, "here");
    auto pipe = listener_.accept(std::chrono::seconds(3));
    ASSERT_TRUE(succeeds(pipe)) << "session " << i;
    EXPECT_TRUE(succeeds(pipe->recv_message(kPatience)));
  }
}

TEST_F(CrowdedDoor, EveryHonestConnectSucceedsDuringAFloodOfHellos) {
  for (const Profile profile : {Profile::plaintext, Profile::local}) {
    listener_ = Listener::bind(server_, "127.0.0.1:0", {.security = {profile}}).value();
    std::atomic<int> left{kFloodOfHellos};
    std::vector<std::thread> flood;
    for (int i = 0; i < 3; ++i) {
      flood.emplace_back([&] {
        while (left.fetch_sub(1) > 0) discard_hello();
      });
    }
    do {
      Context client = Context::create({.name = "client"}).value();
      // The second time uses the link of the first.
      for (int time = 0; time < 2; ++time) an_honest_peer_comes_through(client);
    } while (left.load() > 0 && !HasFailure());
    left = 0;
    for (std::thread& each : flood) each.join();
  }
}

TEST_F(CrowdedDoor, ATicketThatIsNoneIsToldAsWhatItIs) {
  RawClient link(listener_.address(), claims());
  ASSERT_TRUE(is_ready(link.choose()));
  link.open(1, detail::random_nonce().value());
  EXPECT_TRUE(is_error(link.next(), 1, ErrorCode::server_busy, {"ticket", "connect again"}));
}

TEST_F(CrowdedDoor, SilentConnectionsDoNotShutIt) {
  for (const std::size_t count : {130u, 300u}) {
    const auto strangers = silent(count);
    Context client = Context::create({.name = "client"}).value();
    an_honest_peer_comes_through(client);
  }
}

TEST_F(CrowdedDoor, PeersThatStallInTheHandshakeDoNotShutIt) {
  const auto strangers = stall(3 * kHandshakesPerListener);
  Context client = Context::create({.name = "client"}).value();
  an_honest_peer_comes_through(client);
}

TEST_F(CrowdedDoor, SilentAndStalledConnectionsAreClosedInTheEnd) {
  const auto quiet = silent(1);
  const auto stalled = stall(1);
  EXPECT_EQ(read_to_end(quiet[0].get()), "");
  EXPECT_EQ(read_to_end(stalled[0]->fd()), "");
}

TEST(UnixDoor, AFullBacklogIsWaitedFor) {
  Context server = Context::create({.progress = Progress::manual}).value();
  Listener listener = Listener::bind(server, "unix:" + abstract_name()).value();
  const detail::SocketAddress address = detail::unix_socket_address(abstract_name()).value();
  std::vector<detail::OwnedFd> strangers;
  do {
    strangers.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (::connect(strangers.back().get(), address.get(), address.length) == 0);
  ASSERT_EQ(errno, EAGAIN);
  Context client = Context::create({}).value();
  std::atomic<pid_t> connecting{0};
  std::thread connector([&] {
    connecting = gettid();
    EXPECT_TRUE(succeeds(Pipe::connect(client, "unix:" + abstract_name(), kPatience)));
    connecting = 0;
  });
  EXPECT_TRUE(eventually([&] { return connecting != 0; }));
  // Waits until it tries again; a connector that does not has an error by then.
  EXPECT_TRUE(eventually([&] { return connecting == 0 || is_asleep(connecting); }));
  EXPECT_TRUE(eventually([&] { return connecting == 0; }, [&] { server.progress(); }));
  connector.join();
}

// Drops its last share while a pipe is opened, as a group may whose members leave.
class Vanishing final : public detail::OpenHandler {
 public:
  explicit Vanishing(std::promise<bool>& can_lock) : can_lock_(can_lock) {}
  // Takes the lock of a link, as the end of a group does to leave it.
  ~Vanishing() override {
    auto can_lock = std::async(std::launch::async, [this] {
      return eventually([this] {
        if (!link_->receive_mutex().try_lock()) return false;
        link_->receive_mutex().unlock();
        return true;
      });
    });
    can_lock_.set_value(can_lock.get());
  }
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<detail::MessageSink>> on_open(std::shared_ptr<detail::Link> link,
                                                       const detail::Descriptor&, Bytes) override {
    link_ = std::move(link);
    self.reset();
    return Error{ErrorCode::unreachable, "test", "gone"};
  }
  void on_context_closed() override {}

  std::shared_ptr<Vanishing> self;

 private:
  std::promise<bool>& can_lock_;
  std::shared_ptr<detail::Link> link_;
};

TEST(OpenHandlers, EndWithoutTheLockOfTheLink) {
  Context server = Context::create({}).value();
  Context client = Context::create({}).value();
  std::promise<bool> can_lock;
  auto handler = std::make_shared<Vanishing>(can_lock);
  handler->self = handler;
  const auto acceptor = detail::Acceptor::bind(detail::ContextCore::of(server), "127.0.0.1:0",
                                               {Profile::local}, handler)
                            .value();
  handler.reset();
  const auto pipe = Pipe::connect(client, acceptor->address(), kPatience);
  ASSERT_TRUE(pipe) << pipe.error().message();
  EXPECT_TRUE(can_lock.get_future().get());
}

}  // namespace
}  // namespace tendon::test
