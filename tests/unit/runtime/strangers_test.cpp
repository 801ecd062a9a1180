// SPDX-License-Identifier: Apache-2.0
// The log names each stranger that a listener refuses, at a pace that no flood changes.
#include "runtime/strangers.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/observe/log.hpp>
#include <tendon/pipe/listener.hpp>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/expect.hpp"
#include "support/raw_client.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

using detail::OwnedFd;
using detail::stranger_at;
using detail::StrangerLog;

/// Each stranger connects from a different address, 127.0.0.N: loopback has many.
OwnedFd connect_from(int last_byte, const std::string& address) {
  OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here = loopback(0);
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<std::uint32_t>(last_byte));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&here), sizeof here), 0);
  sockaddr_in there = loopback(Address::parse(address).value().port());
  connect_whole(fd.get(), there);
  return fd;
}
std::string source_of(int last_byte) { return "127.0.0." + std::to_string(last_byte); }
/// The address with its port, as in a line.
std::string address_of(const OwnedFd& fd) {
  sockaddr_in here{};
  socklen_t size = sizeof here;
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
  return source_of(static_cast<int>(ntohl(here.sin_addr.s_addr) & 0xFF)) + ":" +
         std::to_string(ntohs(here.sin_port));
}

class RefusedStrangers : public testing::Test {
 protected:
  struct Line {
    LogLevel level;
    std::string context;
    std::string text;
  };

  RefusedStrangers() {
    detail::tell_refused_strangers();  // counts left by other tests
    set_log_callback(LogLevel::warn, [this](const LogLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back({line.level, std::string(line.context), std::string(line.text)});
    });
  }
  ~RefusedStrangers() override { set_log_callback(LogLevel::warn, {}); }

  [[nodiscard]] std::optional<Line> line_with(std::string_view text) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        lines_, [&](const Line& line) { return line.text.find(text) != std::string::npos; });
    return found == lines_.end() ? std::nullopt : std::optional(*found);
  }
  /// `come` connects from this source and is refused. Repeats it until there is a line, because
  /// other tests of this process may have used up the second.
  template <class F>
  [[nodiscard]] testing::AssertionResult names(int source, std::string_view why, F come) {
    std::optional<Line> line;
    std::vector<OwnedFd> connections;
    std::vector<std::string> addresses;
    (void)eventually([&] {
      connections.push_back(connect_from(source, listener_.address()));
      addresses.push_back(address_of(connections.back()));
      come(connections.back());
      line = line_with(source_of(source) + ':');
      return line.has_value();
    });
    if (!line) return testing::AssertionFailure() << "no line about " << source_of(source);
    const bool has_address = std::ranges::any_of(addresses, [&](const std::string& address) {
      return line->text.starts_with("refused " + address);
    });
    if (has_address && line->level == LogLevel::warn &&
        line->context == detail::ContextCore::of(server_)->log_name() &&
        line->text.find(why) != std::string::npos)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << line->context << ": " << line->text;
  }

  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  Context server_ = Context::create({.name = "server"}).value();
  Listener listener_ = Listener::bind(server_, "127.0.0.1:0").value();
};

TEST_F(RefusedStrangers, AreNamedWithTheirAddress) {
  const auto say = [](std::string_view bytes) {
    return [bytes](const OwnedFd& fd) {
      send_all(fd.get(), bytes);
      (void)read_to_end(fd.get());
    };
  };
  EXPECT_TRUE(names(11, "HTTP, as it seems", say("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(names(
      12, "77", say({"TNDN\x4d\x00\x00\x00\x4d\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00", 20})));
  EXPECT_TRUE(names(13, "stranger (host elsewhere, pid 4242): profile 'local' needs the same user",
                    [](OwnedFd& fd) {
                      RawWire wire{OwnedFd(dup(fd.get()))};
                      wire.say(claims());
                      EXPECT_TRUE(wire.hear());
                      detail::HelloMessage path;
                      path.kind = detail::HelloKind::path;
                      path.path = PathKind::tcp;
                      wire.say(path);
                      EXPECT_TRUE(is_refusal(wire.hear(), ErrorCode::permission_denied));
                    }));
  EXPECT_TRUE(names(14, "in time", [](const OwnedFd& fd) { (void)read_to_end(fd.get()); }));
}

TEST_F(RefusedStrangers, AreNotThoseThatJustHangUp) {
  for (int n = 0; n < 3; ++n) (void)connect_from(21, listener_.address());
  EXPECT_TRUE(names(22, "", [](const OwnedFd& fd) {
    send_all(fd.get(), std::string(100, 'x'));
    (void)read_to_end(fd.get());
  }));
  EXPECT_FALSE(line_with(source_of(21)));
}

TEST_F(RefusedStrangers, InAFloodHaveALineASecondAndAreAllCounted) {
  constexpr int kFlood = 300;
  const auto began = StrangerLog::Clock::now();
  for (int n = 0; n < kFlood; ++n) {
    const OwnedFd fd = connect_from(31, listener_.address());
    send_all(fd.get(), std::string(100, 'x'));
    (void)read_to_end(fd.get());
  }
  int line_count = 0;
  int count = 0;
  // Nobody else connects, so a timer reports the rest.
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex_);
    line_count = count = 0;
    for (const Line& line : lines_) {
      if (line.text.starts_with("refused 127.0.0.31:")) ++line_count;
      if (line.text.find(" more that have no line") != std::string::npos)
        count += std::atoi(line.text.c_str() + std::string_view("refused ").size());
    }
    return line_count + count == kFlood;
  })) << line_count
      << " lines, " << count << " counted";
  const auto took = std::chrono::floor<std::chrono::seconds>(StrangerLog::Clock::now() - began);
  EXPECT_LE(line_count, took.count() + 1);
}

TEST_F(RefusedStrangers, ThatAreLeftOutAreCountedAtTheLatestWhenTheListenerGoes) {
  for (int n = 0; n < 50; ++n) {
    detail::refuse_stranger(nullptr, "test", {"10.0.0.7:1", "10.0.0.7"}, "for a test");
  }
  listener_.close();
  EXPECT_TRUE(line_with(" more that have no line"));
}

TEST(Stranger, IsTheFarEndOfItsStream) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const detail::SocketStream here{OwnedFd(ends[0])};
  const detail::SocketStream routed{OwnedFd(ends[1]), {.kind = PathKind::routed}};
  const std::string user = "a process of uid " + std::to_string(getuid());
  EXPECT_EQ(stranger_at(here).address, user + ", pid " + std::to_string(getpid()));
  EXPECT_EQ(stranger_at(here).source, user);
  EXPECT_EQ(stranger_at(routed).address, "a node behind routers");
  const RawListener listener;
  const OwnedFd peer = connect_from(41, listener.address());
  const detail::SocketStream tcp(listener.accept());
  EXPECT_EQ(stranger_at(tcp).address, address_of(peer));
  EXPECT_EQ(stranger_at(tcp).source, source_of(41));
}

}  // namespace
}  // namespace tendon::test
