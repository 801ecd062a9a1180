// SPDX-License-Identifier: Apache-2.0
// Kills peers at random moments and measures how long the survivor waits for the error that names
// them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/processes/random_kill.hpp"
#include "benchmarks/processes/verbs.hpp"
#include "cli/benchmark.hpp"
#include "cli/output.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "bench.detect";

struct Row {
  std::string path;
  std::vector<double> delays_us;  ///< sorted
  std::uint64_t named_count = 0;  ///< errors that name the victim

  [[nodiscard]] Value::Map to_json() const {
    Value::Map json = latency_row(path, "sigkill", delays_us);
    json.emplace_back("named", named_count);
    return json;
  }
};

Result<void> measure_round(Transport transport, std::uint64_t number, std::mt19937& random,
                           Row& row) {
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
  row.delays_us.push_back(std::chrono::duration<double, std::micro>(noticed - killed).count());
  if (received.error().detail.find(victim) != std::string::npos) ++row.named_count;
  return {};
}

}  // namespace

int run_bench_detect(const BenchRobustnessOptions& options) {
  const std::uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  const Table table(
      {{"path", -4}, {"rounds", 6}, {"p50", 9}, {"p99", 9}, {"max", 9}, {"named the victim", 16}});
  if (options.format == Format::text) {
    print_line(fmt::format("# SIGKILL of a peer until recv answers peer_lost; seed {}", seed));
    print_line(table.header());
  }
  Value::List rows;
  bool all_named = true;
  for (const Transport transport : {Transport::automatic, Transport::shm, Transport::tcp}) {
    if (options.transport ? *options.transport != transport : transport == Transport::automatic)
      continue;
    Row row;
    for (std::uint64_t i = 0; i < options.round_count; ++i) {
      if (auto measured = measure_round(transport, i, random, row); !measured)
        return report(measured.error(), options.format);
    }
    std::ranges::sort(row.delays_us);
    all_named = all_named && row.named_count == options.round_count;
    if (options.format == Format::text) {
      print_line(table.row({row.path, std::to_string(options.round_count),
                            format_seconds(percentile(row.delays_us, 50) / 1e6),
                            format_seconds(percentile(row.delays_us, 99) / 1e6),
                            format_seconds(percentile(row.delays_us, 100) / 1e6),
                            fmt::format("{} of {}", row.named_count, options.round_count)}));
    }
    rows.emplace_back(row.to_json());
  }
  if (options.format == Format::json) print_json(benchmark_document("detect", std::move(rows)));
  return all_named ? 0 : error_info(ErrorCode::internal).exit_code;
}

Result<void> play_idle_peer(const Value& parameters) {
  TENDON_TRY(parent, connect_to_parent(parameters));
  while (true) pause();
}

}  // namespace tendon::cli
