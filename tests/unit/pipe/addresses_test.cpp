// SPDX-License-Identifier: Apache-2.0
// Where a program may listen and connect, and the error that names each refusal.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "core/fd.hpp"
#include "support/batches.hpp"
#include "support/log_lines.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"
#include "support/raw_socket.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Addresses : public PipeTest {
 protected:
  void SetUp() override {
    server_ = Context::create({.name = "server", .transport = way().transport}).value();
    client_ =
        Context::create(
            {.name = "client", .progress = way().client_progress, .transport = way().transport})
            .value();
  }
  void passes(std::string_view bind_to, Profile profile = Profile::local) {
    auto listener = Listener::bind(*server_, bind_to, {.security = {profile}});
    ASSERT_TRUE(succeeds(listener)) << bind_to;
    auto from = Pipe::connect(*client_, listener->address(), kPatience, {.security = {profile}});
    ASSERT_TRUE(succeeds(from)) << listener->address();
    Pipe to = listener->accept(kPatience).value();
    ASSERT_TRUE(succeeds(from->send(patterned(1, 50'000), kPatience)));
    EXPECT_TRUE(is_patterned(to.recv(kPatience).value(), 1, 50'000));
    EXPECT_EQ(from->path().kind, way().is_shm() ? PathKind::shm : PathKind::tcp) << from->path();
    EXPECT_EQ(to.path().kind, from->path().kind);
  }
  std::optional<Context> server_;
  std::optional<Context> client_;
};
TENDON_ON_EVERY_WAY(Addresses);

TEST_P(Addresses, LoopbackByNumberAndName) {
  passes("127.0.0.1:0");
  passes("127.0.0.2:0");
  passes("localhost:0");
}

TEST_P(Addresses, Ipv6) {
  if (!std::filesystem::exists("/proc/net/if_inet6")) GTEST_SKIP() << "no IPv6 on this machine";
  passes("[::1]:0");
}

TEST_P(Addresses, UnixPathAndAbstractName) {
  const std::string path = "/tmp/tendon-test-" + std::to_string(getpid()) + ".sock";
  passes("unix:" + path);
  EXPECT_FALSE(std::filesystem::exists(path)) << "the socket file goes with its listener";
  passes("unix:@tendon-test-" + std::to_string(getpid()));
}

TEST_P(Addresses, PlaintextBetweenTheSameTwo) { passes("127.0.0.1:0", Profile::plaintext); }

TEST_P(Addresses, APathInUseIsAddressInUseAndItsFileStays) {
  const std::string path = "/tmp/tendon-test-" + std::to_string(getpid()) + "b.sock";
  Listener first = Listener::bind(*server_, "unix:" + path).value();
  const std::string holder = "pid " + std::to_string(getpid());
  const auto second = Listener::bind(*server_, "unix:" + path);
  EXPECT_TRUE(fails_with(second, ErrorCode::address_in_use, path));
  EXPECT_TRUE(fails_with(second, ErrorCode::address_in_use, holder));
  const std::string name = "unix:@tendon-test-" + std::to_string(getpid()) + "b";
  const Listener named = Listener::bind(*server_, name).value();
  EXPECT_TRUE(fails_with(Listener::bind(*server_, name), ErrorCode::address_in_use, holder));
  EXPECT_TRUE(succeeds(Pipe::connect(*client_, "unix:" + path, kPatience)));
  first.close();
}

TEST_P(Addresses, OneThatIsNotThisHostsIsSaidToBeSo) {
  // 192.0.2.0/24 is reserved for documentation.
  EXPECT_TRUE(
      fails_with(Listener::bind(*server_, "192.0.2.7:0", {.security = {Profile::plaintext}}),
                 ErrorCode::invalid_argument, "no interface of this host has this address"));
}

TEST_P(Addresses, TheChosenPortCanBeRead) {
  Listener listener = Listener::bind(*server_, "127.0.0.1:0").value();
  const Address address = Address::parse(listener.address()).value();
  EXPECT_EQ(address.host(), "127.0.0.1");
  EXPECT_NE(address.port(), 0);
}

TEST_P(Addresses, APortInUseIsAddressInUse) {
  Listener first = Listener::bind(*server_, "127.0.0.1:0").value();
  EXPECT_TRUE(fails_with(Listener::bind(*server_, first.address()), ErrorCode::address_in_use,
                         first.address()));
  EXPECT_TRUE(fails_with(Listener::bind(*client_, first.address()), ErrorCode::address_in_use,
                         first.address()));
  EXPECT_TRUE(fails_with(Listener::bind(*client_, first.address()), ErrorCode::address_in_use,
                         "pid " + std::to_string(getpid())));
}

TEST_P(Addresses, ARoutableBindNeedsPlaintextByName) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    EXPECT_TRUE(
        fails_with(Listener::bind(*server_, address), ErrorCode::permission_denied, "plaintext"))
        << address;
  }
  EXPECT_TRUE(succeeds(Listener::bind(*server_, "0.0.0.0:0", {.security = {Profile::plaintext}})));
}

TEST_P(Addresses, AnAddressThatIsNoneIsRefusedWithTheLegalForms) {
  for (const char* address : {"", "127.0.0.1", "*:7000", "127.0.0.1:65536", "[::1:7000", "unix:"}) {
    EXPECT_TRUE(
        fails_with(Listener::bind(*server_, address), ErrorCode::invalid_argument, address));
    EXPECT_TRUE(fails_with(Pipe::connect(*client_, address, kPatience), ErrorCode::invalid_argument,
                           address));
  }
}

TEST_P(Addresses, NobodyThereIsUnreachable) {
  const std::string dead = [] {
    RawListener closed;
    return closed.address();
  }();
  const std::string no_path = "unix:/tmp/tendon-no-such.sock";
  const std::string no_host = "no-such-host.invalid:7000";
  for (const std::string& address : {dead, no_path, no_host}) {
    EXPECT_TRUE(fails_with(Pipe::connect(*client_, address, kPatience, {.absent = Absent::fail}),
                           ErrorCode::unreachable, address.substr(address.find('/') + 1)));
  }
}

TEST_P(Addresses, AMissingSocketIsToldFromOneThatNobodyListensAt) {
  const ScratchDir directory;
  const std::string address = "unix:" + (directory.path() / "socket").string();
  const auto dial = [&] {
    return Pipe::connect(*client_, address, kPatience, {.absent = Absent::fail});
  };
  const auto missing = dial();
  EXPECT_TRUE(fails_with(missing, ErrorCode::unreachable, "No such file or directory"));
  EXPECT_EQ(missing.error().system_errno, ENOENT);
  {
    const detail::OwnedFd left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
    (directory.path() / "socket").string().copy(place.sun_path, sizeof place.sun_path - 1);
    ASSERT_EQ(::bind(left.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  }
  const auto refused = dial();
  EXPECT_TRUE(fails_with(refused, ErrorCode::unreachable, "Connection refused"));
  EXPECT_EQ(refused.error().system_errno, ECONNREFUSED);
}

TEST_P(Addresses, ConnectDialsUntilItsDeadlineAndSaysHowOften) {
  const std::string nobody = "unix:/tmp/tendon-no-such.sock";
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, nobody, 200ms), ErrorCode::unreachable, "times"));
  const auto once = Pipe::connect(*client_, nobody, Deadline::now());
  EXPECT_TRUE(fails_with(once, ErrorCode::unreachable, "tendon-no-such"));
  EXPECT_EQ(once.error().detail.find("times"), std::string::npos) << "zero is one try";
}

TEST_P(Addresses, AListenerMayStartLater) {
  const ScratchDir directory;
  const std::string address = "unix:" + (directory.path() / "socket").string();
  std::optional<Listener> listener;
  const LogLines lines;
  std::thread starting([&] {
    EXPECT_TRUE(eventually([&] { return lines.have("nobody listens at " + address); }));
    listener.emplace(Listener::bind(*server_, address).value());
  });
  EXPECT_TRUE(succeeds(Pipe::connect(*client_, address, kPatience)));
  starting.join();
}

TEST_P(Addresses, ARequestedStopEndsTheDialling) {
  std::stop_source stop;
  const LogLines lines;
  std::thread stopping([&] {
    EXPECT_TRUE(eventually([&] { return lines.have("nobody listens at"); }));
    stop.request_stop();
  });
  const ConnectOptions options{.stop = stop.get_token()};
  EXPECT_TRUE(fails_with(
      Pipe::connect(*client_, "unix:/tmp/tendon-no-such.sock", Deadline::never(), options),
      ErrorCode::cancelled, "stopped the dialling"));
  stopping.join();
}

TEST_P(Addresses, AnAnswerThatIsNoHelloEndsTheDialling) {
  RawListener http;
  std::thread answering([&] {
    const auto client = http.accept();
    ASSERT_TRUE(client);
    const std::string_view page = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_EQ(::send(client.get(), page.data(), page.size(), 0), static_cast<ssize_t>(page.size()));
    http.close();
  });
  const auto connected = Pipe::connect(*client_, http.address(), Deadline::never());
  ASSERT_FALSE(connected);
  EXPECT_NE(connected.error().code, ErrorCode::unreachable) << connected.error().detail;
  EXPECT_NE(connected.error().detail.find("HTTP"), std::string::npos) << connected.error().detail;
  answering.join();
}

TEST_P(Addresses, AClosedListenerIsUnreachable) {
  Listener listener = Listener::bind(*server_, "127.0.0.1:0").value();
  const std::string address = listener.address();
  listener.close();
  listener.close();
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, address, kPatience, {.absent = Absent::fail}),
                         ErrorCode::unreachable, address));
  EXPECT_FALSE(listener.accept(kPatience));
}

TEST_P(Addresses, ATarpitThatAcceptsAndNeverAnswersIsATimeout) {
  RawListener tarpit;
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, tarpit.address(), 100ms), ErrorCode::timeout,
                         tarpit.address()));
}

TEST_P(Addresses, GarbageInsteadOfAHelloIsAProtocolViolation) {
  RawListener garbage;
  std::thread answering([&] {
    detail::OwnedFd peer = garbage.accept();
    send_all(peer.get(), "HTTP/1.0 400 Bad Request\r\n\r\n");
    read_to_end(peer.get());
  });
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, garbage.address(), kPatience),
                         ErrorCode::protocol_violation, "does not speak"));
  answering.join();
}

TEST_P(Addresses, APeerThatHangsUpDuringTheHelloIsNamed) {
  RawListener rude;
  std::thread answering([&] {
    detail::OwnedFd peer = rude.accept();
    send_all(peer.get(), "TNDN");
  });
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, rude.address(), kPatience), ErrorCode::peer_lost,
                         rude.address()));
  answering.join();
}

TEST_P(Addresses, APeerThatHangsUpWithoutAWordIsDialledUntilTheDeadline) {
  std::optional<RawListener> full(std::in_place);
  const std::string address = full->address();
  std::atomic<int> closed_count{0};
  std::thread answering([&] {
    while (full->accept()) ++closed_count;
  });
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, address, 300ms), ErrorCode::server_busy, address));
  EXPECT_GT(closed_count, 1);
  full->close();
  answering.join();
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, address, kPatience, {.absent = Absent::fail}),
                         ErrorCode::unreachable));
}

TEST_P(Addresses, APeerThatHasAPlaceAgainIsReached) {
  if (way().is_shm()) GTEST_SKIP() << "the peer here speaks tcp only";
  RawServer crowded;
  std::thread serving([&] {
    for (int i = 0; i < 3; ++i) (void)crowded.accept();
    RawWire control = crowded.meet();
    (void)RawServer::admit(control);
    for (int i = 0; i < 3; ++i) (void)crowded.accept();
    const RawWire lane = crowded.lane();
    (void)read_to_end(control.fd());
  });
  {
    auto pipe =
        Pipe::connect(*client_, crowded.address(), kPatience, {.security = {Profile::plaintext}});
    EXPECT_TRUE(succeeds(pipe));
    client_.reset();
  }
  serving.join();
}

TEST_P(Addresses, AnotherMajorVersionIsAVersionMismatchAtBothEnds) {
  // The header of the hello of a peer that speaks major version 77 only; the rest is not needed.
  const std::string hello("TNDN\x4d\x00\x00\x00\x4d\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00",
                          20);
  RawListener newer;
  std::thread answering([&] {
    detail::OwnedFd peer = newer.accept();
    send_all(peer.get(), hello);
    read_to_end(peer.get());
  });
  EXPECT_TRUE(fails_with(Pipe::connect(*client_, newer.address(), kPatience),
                         ErrorCode::version_mismatch, "77"));
  answering.join();

  Listener listener = Listener::bind(*server_, "127.0.0.1:0").value();
  detail::OwnedFd peer = connect_raw(listener.address());
  send_all(peer.get(), hello);
  read_to_end(peer.get());  // it is answered or dropped, not left waiting
  EXPECT_TRUE(succeeds(Pipe::connect(*client_, listener.address(), kPatience))) << "others live on";
}

TEST_P(Addresses, HostileConnectionsDoNotDisturbAListener) {
  Listener listener = Listener::bind(*server_, "127.0.0.1:0").value();
  std::vector<detail::OwnedFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_raw(listener.address()));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, 'x'),
        std::string("TNDN\x00\x00\x01\x00\x00\x00\x00\x00\xff\xff\xff\xff", 16),
        std::string("TNDN")}) {
    detail::OwnedFd peer = connect_raw(listener.address());
    send_all(peer.get(), bytes);
  }
  Pipe from = Pipe::connect(*client_, listener.address(), kPatience).value();
  Pipe to = listener.accept(kPatience).value();
  ASSERT_TRUE(succeeds(from.send(numbered(3), kPatience)));
  EXPECT_EQ(number_of(to.recv(kPatience).value()), 3);
}

class Transports : public testing::Test {};

TEST_F(Transports, AutomaticTakesSharedMemoryOnOneHost) {
  PipePair pair = connect_pair({"automatic"});
  EXPECT_EQ(pair.client.path().kind, PathKind::shm) << pair.client.path();
  EXPECT_EQ(pair.server.path().kind, PathKind::shm);
}

TEST_F(Transports, OneSideThatAsksForTcpGetsIt) {
  Context server = Context::create({.transport = Transport::tcp}).value();
  Context client = Context::create({}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Pipe from = Pipe::connect(client, listener.address(), kPatience).value();
  Pipe to = listener.accept(kPatience).value();
  EXPECT_EQ(from.path().kind, PathKind::tcp) << from.path();
  EXPECT_EQ(to.path().kind, PathKind::tcp) << to.path();
}

TEST_F(Transports, AskingForBothPathsIsRefused) {
  Context server = Context::create({.transport = Transport::tcp}).value();
  Context client = Context::create({.transport = Transport::shm}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  const auto pipe = Pipe::connect(client, listener.address(), kPatience);
  ASSERT_FALSE(pipe);
  EXPECT_NE(pipe.error().detail.find("shm"), std::string::npos) << pipe.error().message();
}

}  // namespace
}  // namespace tendon::test
