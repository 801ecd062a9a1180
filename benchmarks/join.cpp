// SPDX-License-Identifier: Apache-2.0
//
// From nothing to the first sample: a Context, a node, a subscriber and what it receives, while a
// publisher in another process publishes every millisecond. `--by star`: nodes of one host find
// each other by themselves; `--by static`: the publisher's address is given.
#include <array>
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>

#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Node;

constexpr auto kLimit = 60s;
constexpr const char* kKey = "stream";
constexpr std::size_t kAddressBytes = 64;

[[noreturn]] void publish_for_ever(std::size_t size_bytes, bool by_star, int address_to) {
  Context context = Context::create({.name = "publisher"}).value();
  tendon::NodeOptions options{.domain = "bench", .name = "publisher", .listen = "127.0.0.1:0"};
  if (!by_star) options.peers.emplace();
  Node node = Node::join(context, options, kLimit).value();
  tendon::Publisher publisher = tendon::Publisher::declare(node, kKey).value();
  const std::vector<std::byte> content(size_bytes, std::byte{1});
  std::array<char, kAddressBytes> address{};
  node.address().copy(address.data(), address.size() - 1);
  if (write(address_to, address.data(), address.size()) != kAddressBytes) peer::fail_errno("write");
  while (true) {
    (void)publisher.publish(tendon::Bytes(content)).value();
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options =
      peer::parse_options(argc, argv, {.begin_bytes = 1024, .iterations = 20}, {"--by"});
  const std::string by = options.extra_or("--by", "star");
  if (by != "star" && by != "static") peer::fail("--by: star or static");
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) peer::fail_errno("pipe");
  const pid_t publisher =
      peer::spawn([&] { publish_for_ever(options.begin_bytes, by == "star", ends[1]); });
  std::array<char, kAddressBytes> address{};
  if (read(ends[0], address.data(), address.size()) != kAddressBytes) peer::fail_errno("read");
  std::vector<double> samples_us(options.iterations);
  for (double& sample : samples_us) {
    const auto begun = peer::Clock::now();
    Context context = Context::create({.name = "joins"}).value();
    tendon::NodeOptions joining{.domain = "bench", .name = "joins"};
    if (by == "static") joining.peers.emplace({std::string(address.data())});
    Node node = Node::join(context, joining, kLimit).value();
    tendon::Subscriber subscriber = tendon::Subscriber::declare(node, kKey).value();
    (void)subscriber.recv(kLimit).value();
    sample = peer::elapsed_us(begun, peer::Clock::now());
  }
  peer::Result result = peer::summarize("join", by, options.begin_bytes, samples_us);
  result.rate_gb_per_s = 0;
  kill(publisher, SIGKILL);
  waitpid(publisher, nullptr, 0);
  peer::print_json("join", std::span(&result, 1));
}
