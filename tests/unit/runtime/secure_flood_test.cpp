// SPDX-License-Identifier: Apache-2.0
// A crowd before a secure listener: silence, noise and useless hellos. Loopback is exempt from the
// limit of an address, so this is the worst that one host can do.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <thread>
#include <vector>

#include "secure/tls_handshake.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/raw_socket.hpp"
#include "support/sanitizer.hpp"
#include "support/secure/holders.hpp"

namespace tendon::test {
namespace {

using detail::secure::TlsHandshake;

constexpr int kCrowd = TENDON_SANITIZED ? 200 : 1000;
constexpr std::size_t kMostGrownBytes = std::size_t{16} << 20;

/// The first flight of a client with this key.
std::string hello_by(const SharedCredentials& credentials) {
  auto client = TlsHandshake::make(credentials, TlsHandshake::Role::client).value();
  std::vector<std::byte> hello;
  client->advance({}, hello).value();
  return {reinterpret_cast<const char*>(hello.data()), hello.size()};
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

struct Flood {
  std::string name;
  std::string says;
  bool is_held = false;  // its connections stay open
};

class SecureFlood : public testing::Test {
 protected:
  void SetUp() override {
    rlimit descriptors{};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    if (descriptors.rlim_cur < 2 * kCrowd + 500)
      GTEST_SKIP() << "needs " << 2 * kCrowd + 500 << " descriptors (ulimit -n), and has "
                   << descriptors.rlim_cur;
    server_.on_member([this](const MemberEvent& event) {
      if (event.kind == MemberEventKind::suspect) ++suspects_;
    });
    standing_ = connect("standing");
    ASSERT_TRUE(standing_);
    standing_end_ = listener_.accept(kPatience).value();
  }
  [[nodiscard]] static std::vector<Flood> floods() {
    const auto fleet = holder_of_key("fleet", 'a');
    return {{"silence", "", false},
            {"noise", "GET / HTTP/1.1\r\nHost: here\r\n\r\n", false},
            {"hellos by a key that nobody has", hello_by(holder_of_key("fleet", 'b')), false},
            // A replay of an overheard hello: it is answered.
            {"hellos of others", hello_by(fleet), false},
            {"parts of hellos", hello_by(fleet).substr(0, 100), false},
            {"silence that is held", "", true},
            {"hellos of others that are held", hello_by(fleet), true}};
  }
  std::optional<Pipe> connect(const std::string& name) {
    clients_.push_back(
        Context::create({.name = name, .transport = Transport::tcp, .streams = 1}).value());
    auto pipe =
        Pipe::connect(clients_.back(), listener_.address(), kPatience, {.security = fleet_});
    EXPECT_TRUE(succeeds(pipe));
    return pipe ? std::optional(*std::move(pipe)) : std::nullopt;
  }
  /// A new client connects, and its message arrives; so does one of an older pipe.
  void expect_service() {
    for (const bool is_new : {true, false}) {
      auto fresh = is_new ? connect("honest") : std::nullopt;
      if (is_new && !fresh) return;
      std::optional<Pipe> accepted;
      if (is_new) accepted = listener_.accept(kPatience).value();
      Pipe& from = is_new ? *fresh : *standing_;
      Pipe& to = is_new ? *accepted : *standing_end_;
      ASSERT_TRUE(succeeds(from.send(numbered(7), kPatience)));
      const auto received = to.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      EXPECT_EQ(number_of(*received), 7);
    }
    clients_.erase(clients_.begin() + 1, clients_.end());
  }
  /// Only a sanitizer may make a peer silent for that long.
  void expect_no_suspect() const { EXPECT_TRUE(TENDON_SANITIZED || suspects_ == 0) << suspects_; }
  /// Makes one connection of the crowd.
  void visit(const Flood& flood) {
    detail::OwnedFd fd = connect_raw(listener_.address());
    send_all(fd.get(), flood.says);
    if (flood.is_held) held_.push_back(std::move(fd));
  }

  const Security fleet_{Profile::secure, holder_of_key("fleet", 'a'), {}};
  std::atomic<int> suspects_{0};
  Context server_ = Context::create({.name = "server"}).value();
  Listener listener_ = Listener::bind(server_, "127.0.0.1:0", {.security = fleet_}).value();
  std::vector<Context> clients_;
  std::optional<Pipe> standing_;
  std::optional<Pipe> standing_end_;
  std::vector<detail::OwnedFd> held_;
};

TEST_F(SecureFlood, ShutsNobodyOutAndCostsLittle) {
  expect_service();
  for (const Flood& flood : floods()) {
    SCOPED_TRACE(flood.name);
    const std::size_t before = resident_bytes();
    std::thread crowd([&] {
      for (int n = 0; n < kCrowd; ++n) visit(flood);
    });
    for (int n = 0; n < 3 && !HasFatalFailure(); ++n) expect_service();
    crowd.join();
    expect_service();
    const std::size_t after = resident_bytes();
    EXPECT_TRUE(TENDON_SANITIZED || after <= before + kMostGrownBytes)
        << "memory grew by " << after - before << " bytes";
    held_.clear();
  }
  expect_no_suspect();
}

// Not in `make test`: it measures times, which it prints and does not judge.
TEST_F(SecureFlood, ForLonger) {
  if (std::getenv("TENDON_TEST_LONG") == nullptr) GTEST_SKIP() << "TENDON_TEST_LONG is not set";
  using Clock = std::chrono::steady_clock;
  constexpr auto kFor = std::chrono::seconds(10);
  constexpr std::size_t kEachSecond = 5000;
  constexpr std::size_t kCrowds = 3;
  for (const Flood& flood : floods()) {
    SCOPED_TRACE(flood.name);
    std::mutex mutex;
    std::condition_variable ended;
    std::atomic<bool> goes_on{true};
    std::atomic<std::size_t> visits{0};
    const auto begun = Clock::now();
    const std::size_t before = resident_bytes();
    std::vector<std::thread> crowds;
    for (std::size_t n = 0; n < kCrowds; ++n) {
      crowds.emplace_back([&] {
        std::vector<detail::OwnedFd> held;
        while (goes_on) {
          const std::size_t number = visits.fetch_add(1);
          {
            std::unique_lock lock(mutex);
            ended.wait_until(lock, begun + std::chrono::seconds(1) * number / kEachSecond,
                             [&] { return !goes_on; });
          }
          // Does not wait: without room in the kernel, the connection is dropped.
          detail::OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
          const sockaddr_in peer = loopback(Address::parse(listener_.address()).value().port());
          (void)::connect(fd.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
          send_all(fd.get(), flood.says);
          if (!flood.is_held) continue;
          held.push_back(std::move(fd));
          if (held.size() > 1000 / kCrowds) held.erase(held.begin());
        }
      });
    }
    std::vector<double> milliseconds;
    while (Clock::now() - begun < kFor && !HasFailure()) {
      const auto from = Clock::now();
      const auto pipe = connect("honest");
      milliseconds.push_back(
          std::chrono::duration<double, std::milli>(Clock::now() - from).count());
      if (pipe) (void)listener_.accept(kPatience).value();
      clients_.erase(clients_.begin() + 1, clients_.end());
    }
    const std::size_t after = resident_bytes();
    goes_on = false;
    ended.notify_all();
    for (std::thread& crowd : crowds) crowd.join();
    std::ranges::sort(milliseconds);
    std::printf(
        "%-32s %6.0f connections/s; %zu honest connects: p50 %.1f ms, p99 %.1f ms, "
        "last %.1f ms; memory %+.1f MiB\n",
        flood.name.c_str(),
        static_cast<double>(visits) / std::chrono::duration<double>(Clock::now() - begun).count(),
        milliseconds.size(), milliseconds[milliseconds.size() / 2],
        milliseconds[milliseconds.size() * 99 / 100], milliseconds.back(),
        (static_cast<double>(after) - static_cast<double>(before)) / (1 << 20));
  }
  expect_no_suspect();
}

}  // namespace
}  // namespace tendon::test
