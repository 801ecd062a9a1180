// SPDX-License-Identifier: Apache-2.0
// The benchmarks between processes that developers run: their options, the functions that run them,
// and the roles of their second processes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/value.hpp>

#include "cli/output.hpp"

namespace tendon::cli {

/// How the nodes of a fabric find each other.
enum class FabricDiscovery : std::uint8_t { addresses, zenoh };
[[nodiscard]] consteval std::array<Word<FabricDiscovery>, 2> words_of(FabricDiscovery) {
  return {{{FabricDiscovery::addresses, "static"}, {FabricDiscovery::zenoh, "zenoh"}}};
}

struct BenchFabricOptions {
  std::uint64_t seconds = 60;
  std::optional<Transport> transport;        ///< without it, shm and tcp
  std::optional<FabricDiscovery> discovery;  ///< without it, by Zenoh if the build has it
  Format format = Format::text;
};
[[nodiscard]] int run_bench_fabric(const BenchFabricOptions& options);

struct BenchCheckpointOptions {
  std::string file;
  std::uint64_t round_count = 5;
  Format format = Format::text;
};
[[nodiscard]] int run_bench_checkpoint(const BenchCheckpointOptions& options);

struct BenchRobustnessOptions {
  std::uint64_t round_count = 50;
  std::optional<Transport> transport;  ///< without it, shm and tcp
  Format format = Format::text;
};
[[nodiscard]] int run_bench_detect(const BenchRobustnessOptions& options);
[[nodiscard]] int run_bench_deadline(const BenchRobustnessOptions& options);

struct BenchGroupDetectOptions : BenchRobustnessOptions {
  std::uint32_t ranks = 3;
};
[[nodiscard]] int run_bench_group_detect(const BenchGroupDetectOptions& options);

[[nodiscard]] Result<void> play_checkpoint_peer(const Value& parameters);
[[nodiscard]] Result<void> play_detect_rank(const Value& parameters);
[[nodiscard]] Result<void> play_fabric_node(const Value& parameters);
/// Connects and never reads, until the parent ends it.
[[nodiscard]] Result<void> play_idle_peer(const Value& parameters);

}  // namespace tendon::cli
