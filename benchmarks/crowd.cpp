// SPDX-License-Identifier: Apache-2.0
//
// Measures nodes that find each other over real Zenoh: `-n` nodes in one process, each in a Context
// of its own. Each has ten publishers, and ten subscribers to the publishers of the next node. The
// latency is the time from the first declaration until all are connected.
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>

#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Node;

constexpr auto kLimit = 100s;
constexpr std::size_t kTopics = 10;

struct Member {
  Context context;
  Node node;
  std::vector<tendon::Publisher> publishers{};
  std::vector<tendon::Subscriber> subscribers{};
};

std::string name(std::size_t number) { return "n" + std::to_string(number); }

std::string key(std::size_t node, std::size_t topic) {
  return "t" + std::to_string(topic) + '/' + name(node);
}

Member join(std::size_t number) {
  Context context =
      Context::create({.name = name(number), .wait_policy = tendon::WaitPolicy::blocking}).value();
  Node node = Node::join(context, {.domain = "bench", .name = name(number)}, kLimit).value();
  return {std::move(context), std::move(node)};
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse_options(argc, argv, {.iterations = 24});
  const std::size_t count = options.iterations;
  std::vector<Member> members;
  for (std::size_t number = 0; number < count; ++number) members.push_back(join(number));
  const auto begun = peer::Clock::now();
  for (std::size_t number = 0; number < count; ++number) {
    Member& member = members[number];
    for (std::size_t topic = 0; topic < kTopics; ++topic) {
      member.publishers.push_back(
          tendon::Publisher::declare(member.node, key(number, topic)).value());
      member.subscribers.push_back(
          tendon::Subscriber::declare(member.node, key((number + 1) % count, topic)).value());
    }
  }
  for (Member& member : members)
    for (tendon::Subscriber& subscriber : member.subscribers)
      subscriber.wait_for_publishers(1, kLimit).value();
  std::vector<double> samples_us{peer::elapsed_us(begun, peer::Clock::now())};
  peer::Result result =
      peer::summarize("zenoh", "announced " + std::to_string(count), 0, samples_us);
  result.more = {{"nodes", static_cast<double>(count)}};
  peer::print_json("crowd", std::span(&result, 1));
}
