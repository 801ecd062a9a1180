// SPDX-License-Identifier: Apache-2.0
// Kills ranks at random moments. Measures how long the others wait for the error that names the
// rank, and until their next collective without it is done.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/processes/random_kill.hpp"
#include "benchmarks/processes/verbs.hpp"
#include "benchmarks/processes/waiting_rows.hpp"
#include "cli/benchmark.hpp"
#include "cli/group_peers.hpp"
#include "cli/output.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "bench.group_detect";
constexpr std::int64_t kElementCount = 256;

enum class Victim : std::uint8_t { working, asleep };
/// In odd rounds the victim sleeps and the others wait for it in a collective; in even rounds all
/// work.
Victim victim_of(std::uint64_t round) { return round % 2 == 0 ? Victim::working : Victim::asleep; }

/// The times from the kill to the error, and to the end of the next collective.
using Way = std::array<WaitingRow, 2>;

Result<Tensor> small_tensor() { return Tensor::zeros(DType::f32, Shape{kElementCount}); }

Result<void> reduce_once(Group& group, const Tensor& tensor) {
  return group.all_reduce(tensor, ReduceOp::sum, row_deadline());
}

/// Runs collectives until a member has died; returns the text of that error.
Result<std::string> reduce_until_lost(Group& group, const Tensor& tensor) {
  for (;;) {
    auto reduced = reduce_once(group, tensor);
    if (reduced) continue;
    if (reduced.error().code != ErrorCode::peer_lost) return std::move(reduced).error();
    return reduced.error().detail;
  }
}

/// Starts the next epoch, and runs a collective in it.
Result<void> go_on(Group& group, const Tensor& tensor) {
  TENDON_CHECK(group.shrink(row_deadline()));
  return reduce_once(group, tensor);
}

Result<void> measure_round(const BenchGroupDetectOptions& options, Transport transport,
                           std::uint64_t round, std::mt19937& random, Way& way) {
  const std::uint32_t victim = std::uniform_int_distribution(1u, options.ranks - 1)(random);
  TENDON_TRY(peers,
             start_group("group-detect", options.ranks,
                         {{"victim", victim}, {"sleeps", victim_of(round) == Victim::asleep}},
                         {.transport = transport}));
  way[0].path = way[1].path = to_string(peers.group.members()[victim].path->kind);
  TENDON_TRY(tensor, small_tensor());
  TENDON_CHECK(reduce_once(peers.group, tensor));
  TENDON_TRY(kill, RandomKill::start(peers.processes[victim - 1], random, kWhere));
  const auto said = reduce_until_lost(peers.group, tensor);
  const auto noticed = Clock::now();
  const auto killed = kill->join();
  if (!said) return said.error();
  TENDON_CHECK(go_on(peers.group, tensor));
  const auto recovered = Clock::now();
  if (peers.group.size() != options.ranks - 1) {
    return Error{ErrorCode::internal, kWhere,
                 fmt::format("{} members after one of {} died", peers.group.size(), options.ranks)};
  }
  way[0].latencies_us.push_back(
      std::chrono::duration<double, std::micro>(noticed - killed).count());
  way[1].latencies_us.push_back(
      std::chrono::duration<double, std::micro>(recovered - killed).count());
  if (said->find(rank_name(victim)) != std::string::npos) {
    for (WaitingRow& row : way) ++*row.named;
  }
  return {};
}

Result<std::vector<WaitingRow>> measure(const BenchGroupDetectOptions& options, Transport transport,
                                        std::mt19937& random) {
  Way way{WaitingRow{.what = "the error", .mode = "sigkill"},
          WaitingRow{.what = "the next collective", .mode = "shrunk"}};
  for (WaitingRow& row : way) {
    row.named = 0;
    row.more = {{"ranks", options.ranks}};
  }
  for (std::uint64_t round = 0; round < options.round_count; ++round) {
    if (auto measured = measure_round(options, transport, round, random, way); !measured) {
      return with_context(std::move(measured).error(),
                          fmt::format("{}, round {}", to_string(transport), round));
    }
  }
  return std::vector<WaitingRow>(way.begin(), way.end());
}

}  // namespace

int run_bench_group_detect(const BenchGroupDetectOptions& options) {
  const std::uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  return run_waiting(
      "group-detect",
      fmt::format("# SIGKILL of one of {} ranks until rank 0's collective answers peer_lost, and "
                  "until its next collective, without the victim, is done; seed {}",
                  options.ranks, seed),
      options.transport, options.format,
      [&](Transport transport) { return measure(options, transport, random); });
}

Result<void> play_detect_rank(const Value& parameters) {
  TENDON_TRY(child, join_as_child(parameters));
  TENDON_TRY(tensor, small_tensor());
  TENDON_CHECK(reduce_once(child.group, tensor));
  const bool is_victim = parameter(parameters, "victim").as_u64() == child.group.rank().value;
  // Sleeps until the parent ends it.
  while (is_victim && parameter(parameters, "sleeps").as_bool()) pause();
  TENDON_CHECK(reduce_until_lost(child.group, tensor));
  return go_on(child.group, tensor);
}

}  // namespace tendon::cli
