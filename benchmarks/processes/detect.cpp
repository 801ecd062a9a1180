// SPDX-License-Identifier: Apache-2.0
// Kills peers at random moments and measures how long the survivor waits for the error that names
// them.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/processes/random_kill.hpp"
#include "benchmarks/processes/verbs.hpp"
#include "benchmarks/processes/waiting_rows.hpp"
#include "cli/benchmark.hpp"
#include "cli/output.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "bench.detect";

Result<void> measure_round(Transport transport, std::uint64_t number, std::mt19937& random,
                           WaitingRow& row) {
  const std::string victim = fmt::format("victim {}", number);
  TENDON_TRY(link,
             start_peer("idle", {{"name", victim}}, {.name = "survivor", .transport = transport}));
  row.path = to_string(link.pipe.path().kind);
  TENDON_TRY(kill, RandomKill::start(link.process, random, kWhere));
  auto received = link.pipe.recv(row_deadline());
  const auto noticed = Clock::now();
  const auto killed = kill->join();
  if (received || received.error().code != ErrorCode::peer_lost) {
    return Error{ErrorCode::internal, kWhere,
                 received ? "the survivor got a message from the dead"
                          : "the survivor got " + received.error().message()};
  }
  row.latencies_us.push_back(std::chrono::duration<double, std::micro>(noticed - killed).count());
  if (received.error().detail.find(victim) != std::string::npos) ++*row.named;
  return {};
}

}  // namespace

int run_bench_detect(const BenchRobustnessOptions& options) {
  const std::uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  return run_waiting("detect",
                     fmt::format("# SIGKILL of a peer until recv answers peer_lost; seed {}", seed),
                     options.transport, options.format,
                     [&](Transport transport) -> Result<std::vector<WaitingRow>> {
                       WaitingRow row{.what = "the error", .mode = "sigkill", .named = 0};
                       for (std::uint64_t i = 0; i < options.round_count; ++i)
                         TENDON_CHECK(measure_round(transport, i, random, row));
                       return std::vector{std::move(row)};
                     });
}

Result<void> play_idle_peer(const Value& parameters) {
  TENDON_TRY(parent, connect_to_parent(parameters));
  while (true) pause();
}

}  // namespace tendon::cli
