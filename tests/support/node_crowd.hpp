// SPDX-License-Identifier: Apache-2.0
// A crowd of nodes that find each other over the double of Zenoh, as far as discovery goes: what
// each hears until it knows what it looks for, and the time that takes it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/context_id.hpp>
#include <utility>
#include <vector>

#include "fabric/discovery/known_peers.hpp"
#include "fabric/discovery/node_discovery.hpp"
#include "fabric/discovery/zenoh_discovery.hpp"
#include "support/zenoh_network.hpp"

namespace tendon::test {

[[nodiscard]] ContextId context_id(std::uint32_t number);

/// Time that is counted in turns: one thread, in and out.
class Stopwatch {
 public:
  enum class Counts : std::uint8_t { no, yes };
  /// From its beginning to its end, time counts or does not, whatever it did before.
  class Turn {
   public:
    Turn(Stopwatch& watch, Counts counts) : watch_(watch), before_(watch.turn(counts)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { watch_.turn(before_); }

   private:
    Stopwatch& watch_;
    const Counts before_;
  };
  [[nodiscard]] std::chrono::nanoseconds counted() const { return counted_; }

 private:
  Counts turn(Counts counts) {
    const auto now = std::chrono::steady_clock::now();
    if (counts_ == Counts::yes) counted_ += now - since_;
    since_ = now;
    return std::exchange(counts_, counts);
  }

  std::chrono::steady_clock::time_point since_;
  std::chrono::nanoseconds counted_{0};
  Counts counts_ = Counts::no;
};

/// Nodes in a ring, each in a Context of its own with ten publishers and ten subscribers, which
/// read the ten publishers of the next node. One of them matches each.
class NodeCrowd {
 public:
  static constexpr std::uint32_t kTopics = 10;
  static constexpr std::uint32_t kMatching = kTopics;  ///< entities that a node looks for and finds

  /// All announce and follow; run the network until it is quiet.
  NodeCrowd(ZenohNetwork& network, std::uint32_t count);
  NodeCrowd(const NodeCrowd&) = delete;
  NodeCrowd& operator=(const NodeCrowd&) = delete;
  ~NodeCrowd();

  /// Nodes that know their own publishers and those of the next node, and these two nodes, and
  /// nothing else.
  [[nodiscard]] std::size_t matched_count() const;
  /// What Zenoh told the node that was told the most.
  [[nodiscard]] std::size_t most_events() const;
  /// What the nodes took for it, without the double.
  [[nodiscard]] std::chrono::nanoseconds time() const { return watch_.counted(); }

 private:
  struct Member {
    std::size_t events = 0;
    std::shared_ptr<detail::ZenohDiscovery> way;
    std::unique_ptr<detail::NodeDiscovery> node;
    detail::KnownPeers known{"brain"};
  };
  [[nodiscard]] std::unique_ptr<Member> start(std::uint32_t number, std::uint32_t count);

  ZenohNetwork& network_;
  Stopwatch watch_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tendon::test
