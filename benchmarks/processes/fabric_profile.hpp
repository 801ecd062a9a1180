// SPDX-License-Identifier: Apache-2.0
// The full-size brain of `processes fabric`: the topics of each node, their rates and their
// readers. All nodes have a heartbeat, which node 0 reads; the first nine publish a spatial map
// each, in three groups, and each node reads one group.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tendon::cli::brain_profile {

inline constexpr std::uint64_t kNodeCount = 24;
inline constexpr std::uint64_t kSpatialCount = 9;  ///< publishers of spatial topics
inline constexpr std::uint64_t kGroupCount = 3;
inline constexpr std::uint64_t kReadersOfEach = kNodeCount / kGroupCount;
inline constexpr std::uint64_t kSourcesOfEach = kSpatialCount / kGroupCount;
inline constexpr std::int64_t kMapSide = 64;  ///< a map is f32 [64, 64]: 16 KiB
inline constexpr std::uint64_t kMapBytes = kMapSide * kMapSide * sizeof(float);

/// The tick of each node's own clock; a topic is published at every n-th tick.
inline constexpr std::chrono::milliseconds kTick(10);
inline constexpr std::uint64_t kTicksPerSecond = 100;
inline constexpr std::uint64_t kTicksPerMap = 4;
inline constexpr std::uint64_t kTicksPerHeartbeat = 10;

inline std::string name(std::uint64_t node) { return fmt::format("node {}", node); }
inline std::string heartbeat_key(std::uint64_t node) { return fmt::format("heartbeat/{}", node); }
inline constexpr std::string_view kHeartbeatKeys = "heartbeat/*";
inline constexpr bool has_map(std::uint64_t node) { return node < kSpatialCount; }
inline std::string map_key(std::uint64_t node) {
  return fmt::format("spatial/{}/{}", node % kGroupCount, node);
}
/// The keys that a node reads: never the group of its own map.
inline std::string map_keys(std::uint64_t node) {
  return fmt::format("spatial/{}/*", (node + 1) % kGroupCount);
}

/// The planned number of samples, each counted once for each of its subscribers.
inline constexpr std::uint64_t samples_received(std::uint64_t seconds) {
  const std::uint64_t maps = kSpatialCount * kReadersOfEach * (kTicksPerSecond / kTicksPerMap);
  return seconds * (maps + kNodeCount * (kTicksPerSecond / kTicksPerHeartbeat));
}

}  // namespace tendon::cli::brain_profile
