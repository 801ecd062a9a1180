// SPDX-License-Identifier: Apache-2.0
// `processes fabric`: a full-size brain, each node a process. Its nodes run as on one host (one
// runtime directory), or as on separate hosts (a runtime directory for each, so tcp).
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tendon/core/version.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/processes/fabric_profile.hpp"
#include "benchmarks/processes/verbs.hpp"
#include "cli/benchmark.hpp"
#include "cli/fabric_node.hpp"
#include "fabric/discovery/zenoh_membership.hpp"
#include "fabric/zenoh/zenoh_session.hpp"

namespace tendon::cli {
namespace {

using namespace brain_profile;

constexpr std::string_view kWhere = "bench.fabric";
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr int kPort = 7450;
constexpr double kMb = 1e6;

/// A folder for the sockets and the reports of one brain.
class Folder {
 public:
  [[nodiscard]] static Result<Folder> make() {
    std::string path = (std::filesystem::temp_directory_path() / "tendon-bench-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr)
      return system_error(kWhere, fmt::format("mkdtemp('{}')", path), errno);
    return Folder(std::move(path));
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string of(std::string_view name) const {
    return fmt::format("{}/{}", path_, name);
  }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Brain {
  Transport transport = Transport::shm;
  FabricDiscovery discovery = FabricDiscovery::addresses;
  std::uint64_t seconds = 0;
  const Folder& folder;

  [[nodiscard]] std::string report_file(std::uint64_t node) const {
    return folder.of(fmt::format("{}.json", node));
  }
  [[nodiscard]] std::string router() const { return "unix:" + folder.of("router"); }
  /// Every address of 127/8 is usable on the loopback interface, so no free port has to be found.
  [[nodiscard]] static std::string address(std::uint64_t node) {
    const auto pid = static_cast<std::uint32_t>(getpid());
    return fmt::format("127.{}.{}.{}:{}", 1 + (pid >> 8) % 250, pid % 256, node + 1, kPort);
  }

  [[nodiscard]] Value::Map parameters(std::uint64_t node) const {
    const bool on_one_host = transport == Transport::shm;
    Value::Map parameters{
        {"number", node},
        {"seconds", seconds},
        {"domain", fmt::format("bench {}", getpid())},
        {"path", to_string(transport)},
        {"listen", address(node)},
        {"runtime_directory", folder.of(on_one_host ? "run" : fmt::format("run-{}", node))},
        {"report", report_file(node)}};
    const bool by_zenoh = discovery == FabricDiscovery::zenoh;
    parameters.emplace_back(
        "routers", by_zenoh && !on_one_host ? Value::List{Value(router())} : Value::List{});
    if (!by_zenoh) {
      Value::List peers;
      for (std::uint64_t other = 0; other < node; ++other) peers.emplace_back(address(other));
      parameters.emplace_back("peers", std::move(peers));
    }
    return parameters;
  }
};

struct Row {
  std::string path;
  std::string discovery;
  std::uint64_t seconds = 0;
  std::uint64_t published = 0;  ///< once for each subscriber
  std::uint64_t received = 0;
  std::uint64_t repeated = 0;
  std::vector<double> cpu_percent{};  ///< sorted, one per node, like the next ones
  std::vector<double> rss_mb{};
  std::vector<double> private_mb{};
  std::vector<double> p50_us{};
  std::vector<double> p99_us{};

  [[nodiscard]] std::uint64_t lost() const { return published - std::min(published, received); }
  [[nodiscard]] bool is_exact() const {
    return received == published && repeated == 0 && published == samples_received(seconds);
  }
  [[nodiscard]] Value::Map to_json() const {
    Value::Map json{{"path", path},
                    {"mode", discovery},
                    {"size_bytes", kMapBytes},
                    {"nodes", kNodeCount},
                    {"seconds", seconds},
                    {"published", published},
                    {"received", received},
                    {"lost", lost()},
                    {"repeated", repeated},
                    {"latency_us_p50", percentile(p50_us, 50)},
                    {"latency_us_p99", percentile(p99_us, 100)},
                    {"bandwidth_gb_per_s", nullptr},
                    {"ratio", Value::Map()}};
    const auto add = [&](std::string_view name, const std::vector<double>& of_nodes) {
      json.emplace_back(fmt::format("{}_min", name), percentile(of_nodes, 0));
      json.emplace_back(fmt::format("{}_p50", name), percentile(of_nodes, 50));
      json.emplace_back(fmt::format("{}_max", name), percentile(of_nodes, 100));
    };
    add("cpu_percent", cpu_percent);
    add("rss_mb", rss_mb);
    add("private_mb", private_mb);
    return json;
  }
};

/// Waits until all nodes have ended without an error. The first failed node makes this end the
/// others.
Result<void> wait_for(std::vector<PeerProcess>& nodes, const Interrupt& interrupt) {
  for (std::size_t left = nodes.size(); left > 0;) {
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT | WNOHANG) != 0)
      return system_error(kWhere, "waitid", errno);
    if (interrupt.requested()) return interrupt.error(kWhere);
    const auto found = std::ranges::find(nodes, ended.si_pid, &PeerProcess::pid);
    if (ended.si_pid == 0 || found == nodes.end()) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    if (const int code = found->wait(); code != 0) {
      return Error{ErrorCode::internal, kWhere,
                   fmt::format("{} ended with exit code {}", name(found - nodes.begin()), code)};
    }
    --left;
  }
  return {};
}

/// Adds the report of one node to the row. Errors: internal if a publisher was reached by another
/// path than the row's.
Result<void> take_report(const Brain& brain, std::uint64_t node, Row& row) {
  std::ifstream file(brain.report_file(node));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  TENDON_TRY(report, parse_json(as_bytes(text)));
  for (const Value& source : parameter(report, "sources").as_list()) {
    const std::string& path = parameter(source, "path").as_string();
    if (!path.empty() && !path.starts_with(row.path + ":")) {
      return Error{ErrorCode::internal, kWhere,
                   fmt::format("{} got the samples of {} otherwise than by {}: {}", name(node),
                               parameter(source, "publisher").as_string(), row.path, path)};
    }
    const auto count = [&](std::string_view key) { return parameter(source, key).as_u64(); };
    row.published += count("published");
    row.received += count("received");
    row.repeated += count("repeated");
  }
  row.cpu_percent.push_back(parameter(report, "cpu_percent").as_f64());
  row.rss_mb.push_back(parameter(report, "rss_bytes").as_f64() / kMb);
  row.private_mb.push_back(parameter(report, "private_bytes").as_f64() / kMb);
  row.p50_us.push_back(parameter(report, "latency_us_p50").as_f64());
  row.p99_us.push_back(parameter(report, "latency_us_p99").as_f64());
  return {};
}

Result<Row> measure(const BenchFabricOptions& options, Transport transport,
                    FabricDiscovery discovery, const Interrupt& interrupt) {
  TENDON_TRY(folder, Folder::make());
  const Brain brain{transport, discovery, options.seconds, folder};
  std::unique_ptr<detail::ZenohPort> router;
  if (discovery == FabricDiscovery::zenoh && transport == Transport::tcp) {
    TENDON_TRY(listen, detail::zenoh_endpoints({brain.router()}));
    TENDON_TRY(opened,
               detail::open_zenoh({.mode = detail::ZenohMode::router, .listen = std::move(listen)},
                                  row_deadline()));
    router = std::move(opened);
  }
  std::vector<PeerProcess> nodes;
  for (std::uint64_t node = 0; node < kNodeCount; ++node) {
    TENDON_TRY(process, PeerProcess::start("fabric", brain.parameters(node)));
    nodes.push_back(std::move(process));
  }
  TENDON_CHECK(wait_for(nodes, interrupt));
  Row row{.path = std::string(to_string(transport)),
          .discovery = std::string(word_of(discovery)),
          .seconds = options.seconds};
  for (std::uint64_t node = 0; node < kNodeCount; ++node)
    TENDON_CHECK(take_report(brain, node, row));
  for (auto* const figures :
       {&row.cpu_percent, &row.rss_mb, &row.private_mb, &row.p50_us, &row.p99_us})
    std::ranges::sort(*figures);
  return row;
}

const Table& table() {
  static const Table kTable({{"path", -4},
                             {"found by", -8},
                             {"samples", 9},
                             {"lost", 6},
                             {"CPU of a node", 18},
                             {"RSS of a node", 18},
                             {"its own", 18},
                             {"p50", 8},
                             {"p99", 8}});
  return kTable;
}

void print_header(const BenchFabricOptions& options) {
  const Value::Map card = machine_card();
  print_line(fmt::format("# tendon {}, {}, {} CPUs", kVersion, card.front().second.as_string(),
                         usable_cpu_count()));
  print_line(
      fmt::format("# {} nodes, each a process with a clock of {} Hz, for {} s; every sample "
                  "counted once for each subscriber",
                  kNodeCount, kTicksPerSecond, options.seconds));
  print_line(fmt::format("# {} maps of {} KiB a second, each for {} nodes; {} heartbeats a second",
                         kSpatialCount * kTicksPerSecond / kTicksPerMap, kMapBytes >> 10,
                         kReadersOfEach, kNodeCount * kTicksPerSecond / kTicksPerHeartbeat));
  print_line(table().header());
  print_line(table().row({"", "", "", "", "(%)", "(MB)", "(MB)", "(us)", "(us)"}));
}

void print_row(const Row& row) {
  const auto range = [](const std::vector<double>& sorted) {
    return fmt::format("{} ({}..{})", format_number(percentile(sorted, 50)),
                       format_number(percentile(sorted, 0)),
                       format_number(percentile(sorted, 100)));
  };
  print_line(table().row({row.path, row.discovery, std::to_string(row.published),
                          std::to_string(row.lost()), range(row.cpu_percent), range(row.rss_mb),
                          range(row.private_mb), format_number(percentile(row.p50_us, 50)),
                          format_number(percentile(row.p99_us, 100))}));
}

/// Runs the brain; true if every sample reached each of its subscribers exactly once.
Result<bool> run(const BenchFabricOptions& options, const Interrupt& interrupt) {
  const FabricDiscovery discovery = options.discovery.value_or(
      detail::zenoh_version() ? FabricDiscovery::zenoh : FabricDiscovery::addresses);
  if (options.format == Format::text) print_header(options);
  Value::List rows;
  bool all_exact = true;
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    if (options.transport && *options.transport != transport) continue;
    TENDON_TRY(row, measure(options, transport, discovery, interrupt));
    if (options.format == Format::text) print_row(row);
    all_exact = all_exact && row.is_exact();
    rows.emplace_back(row.to_json());
  }
  if (options.format == Format::json) print_json(benchmark_document("fabric", std::move(rows)));
  return all_exact;
}

}  // namespace

int run_bench_fabric(const BenchFabricOptions& options) {
  bool all_exact = false;
  const int code = run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    TENDON_TRY(exact, run(options, interrupt));
    all_exact = exact;
    return {};
  });
  return code != 0 || all_exact ? code : error_info(ErrorCode::internal).exit_code;
}

}  // namespace tendon::cli
