// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <tendon/core/version.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "cli/bench.hpp"
#include "cli/benchmark.hpp"
#include "cli/collective.hpp"
#include "cli/group_peers.hpp"
#include "cli/output.hpp"
#include "cli/process.hpp"
#include "core/environment.hpp"
#include "core/thread.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "cli.bench.collective";
constexpr std::uint64_t kDefaultEndBytes = 64ull << 20;
std::uint32_t default_ranks(Collective collective) { return is_between_stages(collective) ? 4 : 2; }
/// Checked calls. A result that the first call left behind must not pass for that of the second.
constexpr std::uint64_t kCheckCount = 2;
/// How long calls share one deadline: making a deadline costs more than comparing with it.
constexpr std::chrono::seconds kDeadlineUse{10};
/// The longest time between the first and the last rank that a launcher starts.
constexpr std::chrono::seconds kLaunchedJoinLimit{120};

/// The figures of one rank, or the worst of all ranks.
struct Figures {
  double p50_us = 0;
  double p99_us = 0;
  double min_us = 0;
  double mean_us = 0;
  double wrong_count = 0;

  [[nodiscard]] std::array<double, 5> to_array() const {
    return {p50_us, p99_us, min_us, mean_us, wrong_count};
  }
  void take_worst(std::span<const double> of) {
    p50_us = std::max(p50_us, of[0]);
    p99_us = std::max(p99_us, of[1]);
    min_us = std::max(min_us, of[2]);
    mean_us = std::max(mean_us, of[3]);
    wrong_count += of[4];
  }
};

struct Row {
  CollectiveCall call;
  std::uint32_t ranks = 0;
  std::uint64_t size_bytes = 0;
  std::string path;
  Figures figures;
  Check check = Check::none;

  [[nodiscard]] double algbw() const {
    return static_cast<double>(size_bytes) / figures.p50_us / 1e3;
  }
  [[nodiscard]] double busbw() const { return algbw() * bus_factor(call.collective, ranks); }
  [[nodiscard]] std::string redop() const {
    return reduces(call.collective) ? std::string(to_string(call.op)) : "none";
  }
  /// -1 where there is no root, as nccl-tests shows it.
  [[nodiscard]] std::int64_t root() const {
    return call.collective == Collective::broadcast ? std::int64_t{call.root} : -1;
  }
  [[nodiscard]] Value::Map to_json() const {
    Value::Map row = {{"path", path},
                      {"mode", word_of(call.collective)},
                      {"size_bytes", size_bytes},
                      {"latency_us_p50", figures.p50_us},
                      {"latency_us_p99", figures.p99_us},
                      {"latency_us_min", figures.min_us},
                      {"latency_us_mean", figures.mean_us},
                      {"bandwidth_gb_per_s", algbw()},
                      {"bus_bandwidth_gb_per_s", busbw()},
                      {"ratio", Value::Map()},
                      {"ranks", ranks},
                      {"memory", to_string(call.memory)},
                      {"count", call.count},
                      {"type", to_string(call.dtype)},
                      {"redop", redop()},
                      {"root", root()}};
    if (check == Check::every_byte)
      row.emplace_back("wrong", static_cast<std::uint64_t>(figures.wrong_count));
    return row;
  }
};

Result<Figures> measure(CollectiveRun& run, Group& group, std::uint64_t warm_up_count,
                        std::uint64_t count, Check check) {
  // The deadline is renewed between calls, so that it ends a call that hangs and not a row of many
  // calls.
  Deadline deadline = row_deadline();
  auto renewed = Clock::now();
  const auto renew = [&](Clock::time_point now) {
    if (now - renewed < kDeadlineUse) return;
    deadline = row_deadline();
    renewed = now;
  };
  TENDON_CHECK(group.barrier(deadline));
  for (std::uint64_t i = 0; i < warm_up_count; ++i) {
    TENDON_CHECK(run.run(deadline));
    renew(Clock::now());
  }
  std::vector<double> samples;
  samples.reserve(count);
  auto previous = Clock::now();
  const auto start = previous;
  for (std::uint64_t i = 0; i < count; ++i) {
    TENDON_CHECK(run.run(deadline));
    const auto now = Clock::now();
    samples.push_back(std::chrono::duration<double, std::micro>(now - previous).count());
    previous = now;
    renew(now);
  }
  deadline = row_deadline();
  Figures figures;
  figures.mean_us = std::chrono::duration<double, std::micro>(previous - start).count() /
                    static_cast<double>(count);
  std::ranges::sort(samples);
  figures.p50_us = percentile(samples, 50);
  figures.p99_us = percentile(samples, 99);
  figures.min_us = samples.front();
  for (std::uint64_t seed = 1; check == Check::every_byte && seed <= kCheckCount; ++seed) {
    TENDON_TRY(wrong, run.run_checked(seed, deadline));
    figures.wrong_count += static_cast<double>(wrong);
  }
  return figures;
}

/// Sends the figures of all ranks to rank 0. Messages carry them: a faulty collective must not hide
/// its own fault.
Result<Figures> collect(Group& group, const Figures& mine) {
  const Deadline deadline = row_deadline();
  if (group.rank().value != 0) {
    const auto numbers = mine.to_array();
    TENDON_TRY(tensor,
               Tensor::make<double>(Shape{static_cast<std::int64_t>(numbers.size())}, numbers));
    TENDON_CHECK(group.send(tensor, {.rank = GroupRank{0}}, deadline));
    return mine;
  }
  Figures worst = mine;
  TENDON_TRY(tensor,
             Tensor::zeros(DType::f64, Shape{static_cast<std::int64_t>(mine.to_array().size())}));
  for (std::uint32_t rank = 1; rank < group.size(); ++rank) {
    TENDON_CHECK(group.recv(tensor, {.rank = GroupRank{rank}}, deadline));
    worst.take_worst(tensor.span<const double>());
  }
  return worst;
}

std::string path_of(const Group& group) {
  std::string path;
  for (const GroupMember& member : group.members()) {
    if (!member.path) continue;
    const std::string_view kind = to_string(member.path->kind);
    if (!path.empty() && path != kind) return "mixed";
    path = kind;
  }
  return path.empty() ? "none" : path;
}

const Table& table() {
  static const Table kTable({{"size", 10},
                             {"count", 10},
                             {"type", 8},
                             {"redop", 7},
                             {"root", 4},
                             {"memory", -8},
                             {"time", 9},
                             {"min", 9},
                             {"p99", 9},
                             {"algbw", 7},
                             {"busbw", 7},
                             {"#wrong", 6}});
  return kTable;
}

/// The CPU that a rank is pinned to, if there is one.
struct Place {
  std::optional<std::size_t> cpu;
  std::string_view says;
};
/// Where there are enough CPUs, each rank of this host gets its own.
Place place_of(const BenchCollectiveOptions& options, std::uint64_t local_rank,
               std::uint64_t ranks_of_host) {
  if (options.pinning == Pinning::none || ranks_of_host > usable_cpu_count())
    return {{}, "not pinned"};
  return {local_rank, "each pinned to a CPU"};
}

/// The work of each rank; rank 0 reports the results.
class Ranks {
 public:
  Ranks(const BenchCollectiveOptions& options, Context& context, Group& group)
      : options_(options), context_(context), group_(group) {}

  void print_header(WaitPolicy policy, const Place& place) const {
    const Value::Map card = machine_card();
    print_line(fmt::format("# tendon {}, {}, {}: {} rank{}, path {}, policy {}, {}", kVersion,
                           card.front().second.as_string(), word_of(options_.collective),
                           group_.size(), group_.size() == 1 ? "" : "s", path_of(group_),
                           to_string(policy), place.says));
    print_line("# time: p50 of a call. Time, min and p99 are those of the slowest rank.");
    print_line("# algbw: size by time. busbw: algbw times " +
               format_number(bus_factor(options_.collective, group_.size())) +
               ", as nccl-tests has it.");
    print_line(table().header());
    print_line(table().row(
        {"(B)", "(elements)", "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", ""}));
  }

  /// Measures the rows in the order of sizes; rank 0 has the figures of all ranks.
  Result<std::vector<Row>> measure_all(const Place& place) {
    Result<std::vector<Row>> rows{std::vector<Row>()};
    // On a separate thread: pinning it changes nothing for the rest of the process.
    TENDON_TRY(thread,
               detail::Thread::start(
                   {.name = "tendon-measure", .where = kWhere, .task = "that measures"}, [&] {
                     if (place.cpu) pin_thread(*place.cpu);
                     rows = measure_rows();
                   }));
    thread.join();
    return rows;
  }

 private:
  Result<std::vector<Row>> measure_rows() {
    const std::uint64_t end =
        options_.end_bytes.value_or(std::max(kDefaultEndBytes, options_.begin_bytes));
    std::vector<Row> rows;
    for (const BenchMemory memory : options_.memories) {
      for (std::uint64_t size = options_.begin_bytes;;) {
        TENDON_TRY(row, measure_row(memory, size));
        if (prints()) print_row(row);
        rows.push_back(std::move(row));
        if (size == end) break;
        // The largest size is measured too, if no step ends on it.
        const bool last =
            options_.step_bytes ? end - size < *options_.step_bytes : size > end / options_.factor;
        if (last)
          size = end;
        else
          size = options_.step_bytes ? size + *options_.step_bytes : size * options_.factor;
      }
    }
    return rows;
  }

  [[nodiscard]] bool prints() const {
    return group_.rank().value == 0 && options_.format == Format::text;
  }

  Result<Row> measure_row(BenchMemory memory, std::uint64_t size_bytes) {
    const std::uint64_t item = item_size_bytes(options_.dtype);
    const std::uint32_t ranks = group_.size();
    Row row;
    row.ranks = ranks;
    row.path = path_of(group_);
    row.check = options_.check;
    row.call = {options_.collective, options_.dtype, options_.op, options_.root, memory, 0};
    const std::uint64_t unit = has_blocks(options_.collective) ? item * ranks : item;
    row.call.count = std::max<std::uint64_t>(size_bytes / unit, 1);
    row.size_bytes = row.call.element_count(ranks) * item;

    constexpr std::uint64_t kTrafficBytes = 1ull << 30;
    const std::uint64_t count =
        options_.iteration_count != 0
            ? options_.iteration_count
            : std::clamp<std::uint64_t>(kTrafficBytes / row.size_bytes, 20, 20000);
    const std::uint64_t warm_up = options_.warm_up_count != 0
                                      ? options_.warm_up_count
                                      : std::max<std::uint64_t>(count / 10, 5);
    auto measured = [&]() -> Result<Figures> {
      TENDON_TRY(run, CollectiveRun::make(context_, group_, row.call));
      TENDON_TRY(mine, measure(run, group_, warm_up, count, options_.check));
      return collect(group_, mine);
    }();
    if (!measured) {
      return with_context(std::move(measured).error(),
                          fmt::format("{} of {} bytes in {} memory", word_of(options_.collective),
                                      row.size_bytes, to_string(memory)));
    }
    row.figures = *measured;
    return row;
  }

  static void print_row(const Row& row) {
    print_line(table().row(
        {std::to_string(row.size_bytes), std::to_string(row.call.count),
         std::string(to_string(row.call.dtype)), row.redop(), std::to_string(row.root()),
         std::string(to_string(row.call.memory)), format_number(row.figures.p50_us),
         format_number(row.figures.min_us), format_number(row.figures.p99_us),
         format_number(row.algbw()), format_number(row.busbw()),
         row.check == Check::every_byte ? fmt::format("{:.0f}", row.figures.wrong_count) : "N/A"}));
  }

  const BenchCollectiveOptions& options_;
  Context& context_;
  Group& group_;
};

Result<void> check_options(const BenchCollectiveOptions& options, std::uint32_t ranks) {
  const auto refuse = [](std::string detail) {
    return Error{ErrorCode::invalid_argument, kWhere, std::move(detail)};
  };
  const std::uint64_t end =
      options.end_bytes.value_or(std::max(kDefaultEndBytes, options.begin_bytes));
  if (options.begin_bytes == 0 || end < options.begin_bytes) {
    return refuse(fmt::format("-b {} -e {}; legal are 1 <= b <= e", options.begin_bytes, end));
  }
  if (options.collective == Collective::broadcast && options.root >= ranks) {
    return refuse(
        fmt::format("-r {} of {} ranks; legal are 0 to {}", options.root, ranks, ranks - 1));
  }
  if (options.collective == Collective::send_recv && ranks < 2)
    return refuse("sendrecv with 1 rank; it needs at least 2");
  if (is_between_stages(options.collective) && ranks % 2 != 0) {
    return refuse(fmt::format("stage with {} rank{}; it needs an even number: two stages, alike",
                              ranks, ranks == 1 ? "" : "s"));
  }
  if (options.check == Check::none) return {};
  return check_is_exact(
      {.collective = options.collective, .dtype = options.dtype, .op = options.op, .count = 1},
      ranks);
}

// The two ways in which ranks are started.

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return text.empty() || failure != std::errc() || stop != end ? std::nullopt
                                                               : std::optional(number);
}

bool was_launched(const Rendezvous& rendezvous) {
  // Half of a launcher's variables are a launcher's mistake, not a reason to start ranks.
  return rendezvous.size() > 0 || !detail::environment_variable("RANK").empty() ||
         !detail::environment_variable("WORLD_SIZE").empty();
}

WaitPolicy policy_for(const BenchCollectiveOptions& options, std::uint64_t ranks,
                      std::uint64_t cpus) {
  return options.policy.value_or(ranks <= cpus ? WaitPolicy::latency : WaitPolicy::balanced);
}

Value::Map to_parameters(const BenchCollectiveOptions& options) {
  Value::List memories;
  for (const BenchMemory memory : options.memories) memories.emplace_back(static_cast<int>(memory));
  return {
      {"collective", static_cast<int>(options.collective)},
      {"begin_bytes", options.begin_bytes},
      {"end_bytes", options.end_bytes.value_or(std::max(kDefaultEndBytes, options.begin_bytes))},
      {"factor", options.factor},
      {"step_bytes", options.step_bytes.value_or(0)},
      {"iteration_count", options.iteration_count},
      {"warm_up_count", options.warm_up_count},
      {"check", options.check == Check::every_byte},
      {"dtype", static_cast<int>(options.dtype)},
      {"op", static_cast<int>(options.op)},
      {"root", options.root},
      {"memories", std::move(memories)},
      {"pin", options.pinning == Pinning::two_cpus}};
}

BenchCollectiveOptions options_of(const Value& parameters) {
  const auto number = [&](std::string_view key) { return parameter(parameters, key).as_u64(); };
  BenchCollectiveOptions options;
  options.collective = static_cast<Collective>(number("collective"));
  options.begin_bytes = number("begin_bytes");
  options.end_bytes = number("end_bytes");
  options.factor = number("factor");
  if (const std::uint64_t step = number("step_bytes"); step != 0) options.step_bytes = step;
  options.iteration_count = number("iteration_count");
  options.warm_up_count = number("warm_up_count");
  options.check = parameter(parameters, "check").as_bool() ? Check::every_byte : Check::none;
  options.dtype = static_cast<DType>(number("dtype"));
  options.op = static_cast<ReduceKind>(number("op"));
  options.root = static_cast<std::uint32_t>(number("root"));
  options.memories.clear();
  for (const Value& memory : parameter(parameters, "memories").as_list())
    options.memories.push_back(static_cast<BenchMemory>(memory.as_u64()));
  options.pinning = parameter(parameters, "pin").as_bool() ? Pinning::two_cpus : Pinning::none;
  return options;
}

Result<std::vector<Row>> run_own(const BenchCollectiveOptions& options, std::uint32_t ranks) {
  TENDON_CHECK(check_options(options, ranks));
  const WaitPolicy policy = policy_for(options, ranks, usable_cpu_count());
  TENDON_TRY(
      peers,
      start_group("collective", ranks, to_parameters(options),
                  {.name = "bench rank 0", .wait_policy = policy, .transport = options.transport}));
  const Place place = place_of(options, 0, ranks);
  Ranks own(options, peers.context, peers.group);
  if (options.format == Format::text) own.print_header(policy, place);
  TENDON_TRY(rows, own.measure_all(place));
  for (std::size_t i = 0; i < peers.processes.size(); ++i) {
    if (const int code = peers.processes[i].wait(); code != 0) {
      return Error{ErrorCode::internal, kWhere,
                   fmt::format("rank {} ended with exit code {}", i + 1, code)};
    }
  }
  return rows;
}

Result<std::vector<Row>> run_launched(const BenchCollectiveOptions& options,
                                      const Rendezvous& rendezvous) {
  if (options.ranks) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 fmt::format("--ranks {} inside a launcher, which has started the ranks; leave it "
                             "out, or unset RANK and WORLD_SIZE",
                             *options.ranks)};
  }
  if (rendezvous.problem()) return *rendezvous.problem();
  TENDON_CHECK(check_options(options, rendezvous.size()));
  const auto local_rank = number_of(detail::environment_variable("LOCAL_RANK"));
  const auto local_size = number_of(detail::environment_variable("LOCAL_WORLD_SIZE"));
  // A launcher that sets no local size may have pinned each rank to a CPU: this rank sees only its
  // own then.
  const WaitPolicy policy =
      local_size ? policy_for(options, *local_size, usable_cpu_count())
                 : policy_for(options, rendezvous.size(), std::thread::hardware_concurrency());
  TENDON_TRY(context, Context::create({.name = rank_name(rendezvous.rank().value),
                                       .wait_policy = policy,
                                       .transport = options.transport}));
  TENDON_TRY(group,
             Group::join(context, rendezvous, kLaunchedJoinLimit, {.security = {options.profile}}));
  const Place place = local_rank && local_size ? place_of(options, *local_rank, *local_size)
                                               : Place{{}, "pinning left to the launcher"};
  Ranks ranks(options, context, group);
  if (options.format == Format::text && group.rank().value == 0) ranks.print_header(policy, place);
  return ranks.measure_all(place);
}

}  // namespace

int run_bench_collective(const BenchCollectiveOptions& options) {
  const Rendezvous rendezvous = Rendezvous::from_environment();
  const bool launched = was_launched(rendezvous);
  const bool is_first = !launched || rendezvous.rank().value == 0;
  auto rows = launched
                  ? run_launched(options, rendezvous)
                  : run_own(options, options.ranks.value_or(default_ranks(options.collective)));
  if (!rows) return report(rows.error(), is_first ? options.format : Format::text);
  Value::List json;
  bool all_right = true;
  for (const Row& row : *rows) {
    all_right = all_right && row.figures.wrong_count == 0;
    json.emplace_back(row.to_json());
  }
  if (options.format == Format::json && is_first)
    print_json(benchmark_document(word_of(options.collective), std::move(json)));
  return all_right ? 0 : error_info(ErrorCode::corrupt_data).exit_code;
}

Result<void> play_collective_rank(const Value& parameters) {
  const BenchCollectiveOptions options = options_of(parameters);
  TENDON_TRY(child, join_as_child(parameters));
  const Place place = place_of(options, child.group.rank().value, child.group.size());
  TENDON_CHECK(Ranks(options, child.context, child.group).measure_all(place));
  return {};
}

}  // namespace tendon::cli
