// SPDX-License-Identifier: Apache-2.0
// A machine on the path sees all of a plaintext link, and no content of a secure one.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/expect.hpp"
#include "support/secure/holders.hpp"

namespace tendon::test {
namespace {

/// All that TCP carries over loopback from and to one port, while this object lives.
class Capture {
 public:
  /// Nothing if this user may not capture.
  [[nodiscard]] static std::optional<Capture> begin() {
    Capture made;
    made.packets_ = detail::OwnedFd(
        socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_IP)));
    if (!made.packets_) return std::nullopt;
    sockaddr_ll loopback{};
    loopback.sll_family = AF_PACKET;
    loopback.sll_protocol = htons(ETH_P_IP);
    loopback.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    if (bind(made.packets_.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) != 0)
      return std::nullopt;
    const int room_bytes = 64 << 20;
    setsockopt(made.packets_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room_bytes, sizeof room_bytes);
    return made;
  }
  /// Reads the packets that have passed so far.
  void read(std::uint16_t port) {
    std::vector<char> packet(1 << 16);
    for (;;) {
      const ssize_t size = recv(packets_.get(), packet.data(), packet.size(), 0);
      if (size < 0) break;
      take(std::string_view(packet.data(), static_cast<std::size_t>(size)), port);
    }
    tpacket_stats lost{};
    socklen_t bytes = sizeof lost;
    getsockopt(packets_.get(), SOL_PACKET, PACKET_STATISTICS, &lost, &bytes);
    lost_ += lost.tp_drops;
  }
  [[nodiscard]] bool has(std::string_view text) const {
    return seen_.find(text) != std::string::npos;
  }
  [[nodiscard]] std::size_t size() const { return seen_.size(); }
  [[nodiscard]] unsigned lost() const { return lost_; }

 private:
  void take(std::string_view packet, std::uint16_t port) {
    if (packet.size() < 40 || packet[9] != IPPROTO_TCP) return;
    const auto at = [&](std::size_t n) { return static_cast<unsigned char>(packet[n]); };
    const std::size_t ip_bytes = std::size_t{4} * (at(0) & 0xf);
    if (packet.size() < ip_bytes + 20) return;
    const unsigned from = at(ip_bytes) << 8 | at(ip_bytes + 1);
    const unsigned to = at(ip_bytes + 2) << 8 | at(ip_bytes + 3);
    if (from != port && to != port) return;
    packet.remove_prefix(
        std::min(packet.size(), ip_bytes + std::size_t{4} * (at(ip_bytes + 12) >> 4)));
    seen_.append(packet);
  }

  detail::OwnedFd packets_;
  std::string seen_;
  unsigned lost_ = 0;
};

/// A field in the form of a frame of the handshake: docs/protocol.md, "Fields".
std::string field(std::uint16_t type, std::string_view value) {
  const auto size = static_cast<std::uint16_t>(value.size());
  std::string text(4, '\0');
  std::memcpy(text.data(), &type, sizeof type);
  std::memcpy(text.data() + 2, &size, sizeof size);
  return text.append(value);
}
template <class T>
std::string_view bytes_of_value(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

class OnTheWire : public testing::TestWithParam<Profile> {};

TEST_P(OnTheWire, NothingIsSeenOfASecureLinkAndAllOfAPlaintextOne) {
  auto capture = Capture::begin();
  if (!capture) GTEST_SKIP() << "AF_PACKET: " << std::strerror(errno);
  const bool is_secure = GetParam() == Profile::secure;
  const Security security{GetParam(), is_secure ? holder_of_key("fleet", 'a') : nullptr, {}};
  Context client =
      Context::create({.name = "a planted client's name", .transport = Transport::tcp}).value();
  Context server = Context::create({.name = "a planted server's name"}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0", {.security = security}).value();
  const std::uint16_t port = Address::parse(listener.address()).value().port();
  auto from = Pipe::connect(client, listener.address(), kPatience, {.security = security});
  ASSERT_TRUE(succeeds(from));
  auto to = listener.accept(kPatience).value();
  capture->read(port);

  // One payload with the descriptor, and one over a bulk lane.
  std::string small = "a planted small payload";
  std::string large(100'000, '.');
  large += "a planted large payload";
  for (const std::string& payload : {small, large}) {
    TensorDict message;
    message.set("a planted key", Tensor::of<std::uint8_t>(
                                     {static_cast<std::int64_t>(payload.size())},
                                     std::vector<std::uint8_t>(payload.begin(), payload.end())));
    ASSERT_TRUE(succeeds(from->send(message, kPatience)));
    ASSERT_TRUE(succeeds(to.recv(kPatience)));
    capture->read(port);
  }

  ASSERT_EQ(capture->lost(), 0u);
  ASSERT_GT(capture->size(), large.size());
  const auto hello = detail::ContextCore::of(client)->hello(GetParam());
  const auto there = detail::ContextCore::of(server)->hello(GetParam());
  const auto encoded = encode(hello);
  const std::string frame(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  struct Planted {
    std::string what;
    std::string bytes;
  };
  for (const Planted& planted : {
           Planted{"the beginning of a frame", frame.substr(0, 12)},
           Planted{"a small payload", small},
           Planted{"a large payload", "a planted large payload"},
           Planted{"a key of the schema", "a planted key"},
           Planted{"the name of a Context", "a planted client's name"},
           Planted{"the name of the other", "a planted server's name"},
           Planted{"the host", field(0x0007, hello.host)},
           Planted{"the uid", field(0x0006, bytes_of_value(static_cast<std::uint32_t>(hello.uid)))},
           Planted{"the pid", field(0x0005, bytes_of_value(static_cast<std::int64_t>(hello.pid)))},
           Planted{"the boot id", field(0x000a, bytes_of_value(hello.boot_id))},
           Planted{"a context id", std::string(bytes_of_value(hello.context_id))},
           Planted{"the other", std::string(bytes_of_value(there.context_id))},
           Planted{"a token", field(0x000a, bytes_of_value(there.boot_id)) +
                                  field(0x000b, std::string(16, ' ')).substr(0, 4)},
       }) {
    EXPECT_EQ(capture->has(planted.bytes), !is_secure) << planted.what;
  }
  // The label of a key is visible: SECURITY.md says so.
  EXPECT_EQ(capture->has("key:fleet"), is_secure);
}

INSTANTIATE_TEST_SUITE_P(Profiles, OnTheWire, testing::Values(Profile::plaintext, Profile::secure),
                         [](const auto& row) { return std::string(to_string(row.param)); });

}  // namespace
}  // namespace tendon::test
