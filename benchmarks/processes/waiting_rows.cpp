// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/processes/waiting_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/benchmark.hpp"

namespace tendon::cli {

int run_waiting(std::string_view benchmark, const std::string& heading,
                std::optional<Transport> asked, Format format,
                const std::function<Result<std::vector<WaitingRow>>(Transport)>& measure) {
  const Table table(
      {{"path", -4}, {"what", -34}, {"rounds", 6}, {"p50", 9}, {"p99", 9}, {"max", 9}, {"", -23}});
  if (format == Format::text) {
    print_line(heading);
    print_line(table.header());
  }
  Value::List rows;
  bool all_named = true;
  for (const Transport transport : {Transport::automatic, Transport::shm, Transport::tcp}) {
    if (asked ? *asked != transport : transport == Transport::automatic) continue;
    auto measured = measure(transport);
    if (!measured) return report(measured.error(), format);
    for (WaitingRow& row : *measured) {
      std::ranges::sort(row.latencies_us);
      const std::uint64_t rounds = row.latencies_us.size();
      const auto at = [&](double percent) {
        return format_seconds(percentile(row.latencies_us, percent) / 1e6);
      };
      if (format == Format::text) {
        print_line(table.row(
            {row.path, row.what, std::to_string(rounds), at(50), at(99), at(100),
             row.named ? fmt::format("{} of {} named it", *row.named, rounds) : std::string()}));
      }
      Value::Map json = latency_row(row.path, row.mode, row.latencies_us);
      if (row.named) json.emplace_back("named", *row.named);
      json.insert(json.end(), row.more.begin(), row.more.end());
      rows.emplace_back(std::move(json));
      all_named = all_named && row.named.value_or(rounds) == rounds;
    }
  }
  if (format == Format::json) print_json(benchmark_document(benchmark, std::move(rows)));
  return all_named ? 0 : error_info(ErrorCode::internal).exit_code;
}

}  // namespace tendon::cli
