// SPDX-License-Identifier: Apache-2.0
//
// Measures the time from no Context to the first sample: makes a Context, a node and a subscriber,
// while a publisher in another process publishes every millisecond. With `--by star`, nodes of one
// host find each other by themselves; with `--by static`, the node gets the publisher's address.
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>

#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Node;

constexpr auto kLimit = 60s;
constexpr const char* kKey = "stream";

[[noreturn]] void publish_for_ever(std::size_t size_bytes, bool by_star, const peer::Words& words) {
  Context context = Context::create({.name = "publisher"}).value();
  tendon::NodeOptions options{.domain = "bench", .name = "publisher", .listen = "127.0.0.1:0"};
  if (!by_star) options.peers.emplace();
  Node node = Node::join(context, options, kLimit).value();
  tendon::Publisher publisher = tendon::Publisher::declare(node, kKey).value();
  const std::vector<std::byte> content(size_bytes, std::byte{1});
  words.write_text(node.address());
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
  const peer::Words words;
  const pid_t publisher =
      peer::spawn([&] { publish_for_ever(options.begin_bytes, by == "star", words); });
  const std::string address = words.read_text();
  std::vector<double> samples_us(options.iterations);
  for (double& sample : samples_us) {
    const auto begun = peer::Clock::now();
    Context context = Context::create({.name = "joins"}).value();
    tendon::NodeOptions joining{.domain = "bench", .name = "joins"};
    if (by == "static") joining.peers.emplace({address});
    Node node = Node::join(context, joining, kLimit).value();
    tendon::Subscriber subscriber = tendon::Subscriber::declare(node, kKey).value();
    (void)subscriber.recv(kLimit).value();
    sample = peer::elapsed_us(begun, peer::Clock::now());
  }
  peer::Result result = peer::summarize("join", by, options.begin_bytes, samples_us);
  result.rate_gb_per_s = 0;
  peer::end_by_kill(publisher);
  peer::print_json("join", std::span(&result, 1));
}
