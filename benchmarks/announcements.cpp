// SPDX-License-Identifier: Apache-2.0
//
// Measures discovery by the number of nodes, over the in-memory double of Zenoh: `-n` nodes with 20
// entities each announce themselves at once. `events` is the largest number of events that Zenoh
// sent to one node. The latency is the total time of all nodes until each has found its
// matches, without that of the double. `quiet_us` is the elapsed time of the double's own clock.
#include "peers/peer.hpp"
#include "support/node_crowd.hpp"

using tendon::test::NodeCrowd;
using tendon::test::ZenohNetwork;

int main(int argc, char** argv) {
  const peer::Options options = peer::parse_options(argc, argv, {.iterations = 24});
  const auto count = static_cast<std::uint32_t>(options.iterations);
  ZenohNetwork network({.seed = count});
  const NodeCrowd crowd(network, count);
  network.run_until_quiet();
  if (crowd.matched_count() != count) peer::fail("not every node has found what it looks for");
  const double all_us = static_cast<double>(crowd.time().count()) / 1e3;
  std::vector<double> samples_us{all_us};
  peer::Result result =
      peer::summarize("double", "announced " + std::to_string(count), 0, samples_us);
  result.more = {{"nodes", count},
                 {"events", static_cast<double>(crowd.most_events())},
                 {"quiet_us", static_cast<double>(network.now().count())}};
  peer::print_json("announcements", std::span(&result, 1));
}
