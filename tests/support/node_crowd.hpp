// SPDX-License-Identifier: Apache-2.0
// A crowd of nodes that discover each other over the double of Zenoh. It measures how much each
// node hears until it knows its matches, and the time that this takes.
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

/// Measures time in turns, for one thread that enters and leaves them.
class Stopwatch {
 public:
  enum class Counts : std::uint8_t { no, yes };
  /// Makes time count or not while it lives, whatever the state before.
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

/// Nodes in a ring, each in its own Context with ten publishers and ten subscribers. The
/// subscribers read the ten publishers of the next node, one match each.
class NodeCrowd {
 public:
  static constexpr std::uint32_t kTopics = 10;
  static constexpr std::uint32_t kMatching = kTopics;  ///< entities that a node looks for and finds

  /// Makes all nodes announce and follow. The caller then runs the network until it is quiet.
  NodeCrowd(ZenohNetwork& network, std::uint32_t count);
  NodeCrowd(const NodeCrowd&) = delete;
  NodeCrowd& operator=(const NodeCrowd&) = delete;
  ~NodeCrowd();

  /// Counts the nodes that know their own publishers, those of the next node and these two nodes,
  /// and nothing else.
  [[nodiscard]] std::size_t matched_count() const;
  /// Returns the number of Zenoh events of the node that heard the most.
  [[nodiscard]] std::size_t most_events() const;
  /// Returns the time that the nodes took, without that of the double.
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
