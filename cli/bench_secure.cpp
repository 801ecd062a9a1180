// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_secure.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <tendon/core/version.hpp>
#include <utility>
#include <vector>

#include "cli/bench_bytes.hpp"
#include "cli/bench_credentials.hpp"
#include "cli/bench_crypto.hpp"
#include "cli/benchmark.hpp"
#include "cli/key.hpp"
#include "cli/output.hpp"
#include "cli/secure_ways.hpp"
#include "core/thread.hpp"
#include "secure/ipsec_mb_sealer.hpp"
#include "secure/record_format.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;
using detail::secure::SealerKind;

constexpr std::string_view kWhere = "cli.bench.secure";
constexpr std::size_t kWays = kWords<WayKind>.size();
constexpr std::uint64_t kMostMessageBytes = 1ull << 30;
/// The size of the word that begins and ends a run of messages one way: both ends are ready then.
constexpr std::uint64_t kWordBytes = 1;

bool is_rate(std::uint64_t size_bytes) { return size_bytes >= kTensorBytes; }

/// One step of the second process.
struct Order {
  enum class Task : std::uint8_t {
    open,      ///< connects
    exchange,  ///< count times: receives a message, sends one
    stream,    ///< a word both ways, then count messages, then a word back
    end,
  };
  Task task = Task::end;
  WayKind way = WayKind::plaintext;
  std::uint64_t size_bytes = 0;
  std::uint64_t count = 0;
  std::string address{};  // of `open`

  [[nodiscard]] Result<std::string> to_text() const {
    return to_json(Value(Value::Map{{"task", static_cast<int>(task)},
                                    {"way", to_string(way)},
                                    {"size_bytes", size_bytes},
                                    {"count", count},
                                    {"address", address}}));
  }
  [[nodiscard]] static Result<Order> of(Bytes json) {
    const std::vector<std::byte> own(json.begin(), json.end());
    TENDON_TRY(value, parse_json(own));
    return Order{static_cast<Task>(parameter(value, "task").as_i64()),
                 choice<WayKind>(value, "way"), parameter(value, "size_bytes").as_u64(),
                 parameter(value, "count").as_u64(), parameter(value, "address").as_string()};
  }
};

/// The results of the second process for one order.
struct Report {
  double cpu_s = 0;
  std::uint64_t wrong = 0;  // messages with other bytes than the input has
};

/// Receives a stream of messages and sends a word back; returns the CPU time of this process while
/// they arrive [s].
Result<double> take_stream(Way& way, const Order& order) {
  TENDON_CHECK(way.receive(kWordBytes));
  TENDON_CHECK(way.send(kWordBytes));
  const double start = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (std::uint64_t i = 0; i < order.count; ++i) TENDON_CHECK(way.receive(order.size_bytes));
  const double spent = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
  TENDON_CHECK(way.send(kWordBytes));
  return spent;
}

Result<void> take_exchange(Way& way, const Order& order) {
  for (std::uint64_t i = 0; i < order.count; ++i) {
    TENDON_CHECK(way.receive(order.size_bytes));
    TENDON_CHECK(way.send(order.size_bytes));
  }
  return {};
}

Result<Storage> make_input(std::uint64_t size_bytes) {
  TENDON_TRY(input, Storage::allocate(size_bytes));
  fill_patterned({input.data(), size_bytes}, 0);
  return input;
}

CredentialFiles files_of(WayKind kind, const BenchCredentials& credentials) {
  if (kind == WayKind::records) return credentials.key();
  if (kind == WayKind::ssl) return credentials.certificates();
  return {};
}

/// The figures of one way in one round.
struct Sample {
  double p50_us = 0;
  double p99_us = 0;
  double wall_s = 0;
  double gb_per_s = 0;
  double sender_s_per_gb = 0;
  double receiver_s_per_gb = 0;
};

/// The rounds of each way at one size with one wait policy.
struct Series {
  std::uint64_t size_bytes = 0;
  WaitPolicy policy = WaitPolicy::blocking;
  std::array<std::vector<Sample>, kWays> ways{};

  [[nodiscard]] const std::vector<Sample>& of(WayKind kind) const {
    return ways[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] Spread spread(WayKind kind, double Sample::*figure) const {
    std::vector<double> rounds;
    for (const Sample& sample : of(kind)) rounds.push_back(sample.*figure);
    return Spread::of(std::move(rounds));
  }
  /// The ratio to the same way without protection, in each round; `extra` is added to the latter.
  [[nodiscard]] Spread ratio(WayKind kind, double Sample::*figure, double extra = 0) const {
    std::vector<double> rounds;
    const auto& base = of(unprotected(kind));
    for (std::size_t n = 0; n < base.size(); ++n)
      rounds.push_back(of(kind)[n].*figure / (base[n].*figure + extra));
    return Spread::of(std::move(rounds));
  }
};

/// This process and the second one, with all connections open between them.
class Pair {
 public:
  Pair(const BenchSecureOptions& options, PeerLink link)
      : options_(options), link_(std::move(link)) {}

  [[nodiscard]] static Result<std::unique_ptr<Pair>> make(const BenchSecureOptions& options,
                                                          const BenchHosts& hosts,
                                                          const BenchCredentials& credentials,
                                                          const Storage& input, WaitPolicy policy) {
    Value::Map parameters = {{"pin", options.pinning == Pinning::two_cpus},
                             {"sealer", word_of(options.sealer)},
                             {"host", hosts.address()},
                             {"input_bytes", input.size_bytes()},
                             {"bench_key", credentials.key().key},
                             {"bench_cert", credentials.certificates().cert},
                             {"bench_cert_key", credentials.certificates().cert_key},
                             {"bench_ca", credentials.certificates().ca}};
    SecurityOptions plaintext;
    plaintext.profile = Profile::plaintext;
    TENDON_TRY(
        link,
        start_peer("secure", std::move(parameters),
                   {.name = "bench secure", .wait_policy = policy, .transport = Transport::tcp},
                   {.host = hosts.address(), .by = hosts.other_by(), .security = plaintext}));
    auto pair = std::make_unique<Pair>(options, std::move(link));
    for (const auto& [kind, word] : kWords<WayKind>) {
      WayMaker maker({kind, policy, hosts.address(), files_of(kind, credentials), input});
      TENDON_TRY(way, maker.listen([&](const std::string& address) {
        return pair->tell({Order::Task::open, kind, 0, 0, address});
      }));
      TENDON_CHECK(pair->report());
      pair->ways_[static_cast<std::size_t>(kind)] = std::move(way);
    }
    return pair;
  }

  [[nodiscard]] Result<Sample> measure(WayKind kind, std::uint64_t size_bytes) {
    return is_rate(size_bytes) ? measure_rate(kind, size_bytes) : measure_latency(kind, size_bytes);
  }
  [[nodiscard]] std::string protection(WayKind kind) const {
    return ways_[static_cast<std::size_t>(kind)]->protection();
  }
  [[nodiscard]] Result<void> end() {
    TENDON_CHECK(tell({}));
    if (const int code = link_.process.wait(); code != 0) {
      return Error{ErrorCode::internal, kWhere,
                   fmt::format("the second process ended with exit code {}", code)};
    }
    return {};
  }

 private:
  [[nodiscard]] Result<void> tell(const Order& order) {
    TENDON_TRY(text, order.to_text());
    return link_.pipe.send(as_bytes(text), {}, row_deadline());
  }
  [[nodiscard]] Result<Report> report() {
    TENDON_TRY(message, link_.pipe.recv_message(row_deadline()));
    Report report;
    if (message.bytes.size_bytes() != sizeof report) {
      return Error{ErrorCode::internal, kWhere, "the second process reports something else"};
    }
    std::memcpy(&report, message.bytes.data(), sizeof report);
    if (report.wrong == 0) return report;
    return Error{ErrorCode::corrupt_data, kWhere, "a message arrived with other bytes"};
  }

  [[nodiscard]] Result<Sample> measure_latency(WayKind kind, std::uint64_t size_bytes) {
    const std::uint64_t count = options_.iteration_count != 0 ? options_.iteration_count : 500;
    const std::uint64_t warm_up = std::max<std::uint64_t>(count / 10, 1);
    Way& way = *ways_[static_cast<std::size_t>(kind)];
    way.begin();
    TENDON_CHECK(tell({Order::Task::exchange, kind, size_bytes, warm_up + count, {}}));
    std::vector<double> samples;
    Sample sample;
    for (std::uint64_t i = 0; i < warm_up + count; ++i) {
      const auto start = Clock::now();
      TENDON_CHECK(way.send(size_bytes));
      TENDON_CHECK(way.receive(size_bytes));
      const double trip_us = elapsed_us(start);
      if (i < warm_up) continue;
      samples.push_back(trip_us / 2);
      sample.wall_s += trip_us / 1e6;
    }
    TENDON_CHECK(report());
    std::ranges::sort(samples);
    sample.p50_us = percentile(samples, 50);
    sample.p99_us = percentile(samples, 99);
    return sample;
  }

  [[nodiscard]] Result<Sample> measure_rate(WayKind kind, std::uint64_t size_bytes) {
    const std::uint64_t round_bytes = (options_.link == BenchLink::veth_1g ? 32ull : 256ull) << 20;
    const std::uint64_t count = options_.iteration_count != 0
                                    ? options_.iteration_count
                                    : std::max<std::uint64_t>(round_bytes / size_bytes, 2);
    TENDON_CHECK(stream(kind, size_bytes, 1));  // makes the objects that a connection makes once
    return stream(kind, size_bytes, count);
  }
  [[nodiscard]] Result<Sample> stream(WayKind kind, std::uint64_t size_bytes, std::uint64_t count) {
    Way& way = *ways_[static_cast<std::size_t>(kind)];
    way.begin();
    TENDON_CHECK(tell({Order::Task::stream, kind, size_bytes, count, {}}));
    TENDON_CHECK(way.send(kWordBytes));
    TENDON_CHECK(way.receive(kWordBytes));
    const double cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < count; ++i) TENDON_CHECK(way.send(size_bytes));
    TENDON_CHECK(way.receive(kWordBytes));
    Sample sample;
    sample.wall_s = elapsed_us(start) / 1e6;
    const double spent = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    TENDON_TRY(there, report());
    const double gb = static_cast<double>(size_bytes * count) / 1e9;
    sample.gb_per_s = gb / sample.wall_s;
    sample.sender_s_per_gb = spent / gb;
    sample.receiver_s_per_gb = there.cpu_s / gb;
    return sample;
  }

  const BenchSecureOptions& options_;
  PeerLink link_;
  std::array<std::unique_ptr<Way>, kWays> ways_;
};

/// The results of a run.
struct Findings {
  std::vector<SealCost> sealers;
  std::vector<HandshakeCost> handshakes;
  std::array<std::string, kWays> protections;
  std::vector<Series> series;

  [[nodiscard]] double seal_s_per_gb(SealerKind kind) const {
    const auto found = std::ranges::find(sealers, kind, &SealCost::kind);
    return found == sealers.end() ? 0 : found->s_per_gb.median;
  }
};

Result<void> measure_policy(const BenchSecureOptions& options, WaitPolicy policy, Pair& pair,
                            Findings& findings) {
  if (options.pinning == Pinning::two_cpus) pin_thread(0);
  for (const auto& [kind, word] : kWords<WayKind>)
    findings.protections[static_cast<std::size_t>(kind)] = pair.protection(kind);
  for (const std::uint64_t size_bytes : options.messages) {
    // A rate is measured with ends that sleep: an end that spins takes the CPU in any case.
    if (is_rate(size_bytes) && policy != WaitPolicy::blocking) continue;
    Series series{size_bytes, policy};
    for (std::uint64_t round = 0; round < options.rounds; ++round) {
      // Each way takes a turn at being first.
      for (std::size_t n = 0; n < kWays; ++n) {
        const std::size_t way = (round + n) % kWays;
        TENDON_TRY(sample, pair.measure(kWords<WayKind>[way].value, size_bytes));
        series.ways[way].push_back(sample);
      }
    }
    findings.series.push_back(std::move(series));
  }
  return pair.end();
}

Result<Findings> measure(const BenchSecureOptions& options) {
  const detail::secure::AeadKey any_key;
  TENDON_CHECK(detail::secure::make_sealer(options.sealer, any_key));
  detail::secure::prefer_sealer(options.sealer);
  TENDON_TRY(hosts, BenchHosts::make(options.link, options.softirq));
  TENDON_TRY(credentials, BenchCredentials::make());
  TENDON_TRY(input, make_input(std::max<std::uint64_t>(std::ranges::max(options.messages), 1)));
  Findings findings;
  TENDON_TRY(sealers, measure_sealers(options.rounds));
  findings.sealers = std::move(sealers);
  TENDON_TRY(handshakes, measure_handshakes(options.rounds, credentials));
  findings.handshakes = std::move(handshakes);
  for (const WaitPolicy policy : {WaitPolicy::blocking, WaitPolicy::latency}) {
    TENDON_TRY(pair, Pair::make(options, hosts, credentials, input, policy));
    Result<void> measured;
    // On a separate thread: pinning it pins neither service threads nor the next peer.
    TENDON_TRY(thread, detail::Thread::start(
                           {.name = "tendon-measure", .where = kWhere, .task = "that measures"},
                           [&] { measured = measure_policy(options, policy, *pair, findings); }));
    thread.join();
    TENDON_CHECK(measured);
  }
  return findings;
}

/// The sealer whose pass over the bytes this kind makes; nothing where it makes none.
std::optional<SealerKind> sealer_of(WayKind kind) {
  if (kind == WayKind::records) return detail::secure::automatic_sealer();
  return kind == WayKind::ssl ? std::optional(SealerKind::openssl) : std::nullopt;
}

Value::Map row_of(const Series& series, WayKind kind, const Findings& findings) {
  Value::Map row = {{"path", "tcp"},
                    {"mode", to_string(kind)},
                    {"policy", to_string(series.policy)},
                    {"size_bytes", series.size_bytes},
                    {"protection", findings.protections[static_cast<std::size_t>(kind)]}};
  Value::Map ratio;
  const std::string base(to_string(unprotected(kind)));
  const bool has_base = unprotected(kind) != kind;
  series.spread(kind, &Sample::wall_s).add_to(row, "wall_s");
  if (!is_rate(series.size_bytes)) {
    series.spread(kind, &Sample::p50_us).add_to(row, "latency_us_p50");
    series.spread(kind, &Sample::p99_us).add_to(row, "latency_us_p99");
    row.emplace_back("bandwidth_gb_per_s", nullptr);
    if (has_base) series.ratio(kind, &Sample::p50_us).add_to(ratio, base);
  } else {
    row.emplace_back("latency_us_p50", nullptr);
    row.emplace_back("latency_us_p99", nullptr);
    series.spread(kind, &Sample::gb_per_s).add_to(row, "bandwidth_gb_per_s");
    series.spread(kind, &Sample::sender_s_per_gb).add_to(row, "sender_cpu_s_per_gb");
    series.spread(kind, &Sample::receiver_s_per_gb).add_to(row, "receiver_cpu_s_per_gb");
    if (has_base) {
      const double pass = findings.seal_s_per_gb(*sealer_of(kind));
      series.ratio(kind, &Sample::gb_per_s).add_to(ratio, base);
      // The ratio to the cost if nothing but the cipher were added.
      series.ratio(kind, &Sample::sender_s_per_gb, pass).add_to(ratio, "sender_cpu");
      series.ratio(kind, &Sample::receiver_s_per_gb, pass).add_to(ratio, "receiver_cpu");
    }
  }
  row.emplace_back("ratio", std::move(ratio));
  return row;
}

Value::List rows_of(const Findings& findings) {
  Value::List rows;
  for (const Series& series : findings.series)
    for (const auto& [kind, word] : kWords<WayKind>)
      rows.emplace_back(row_of(series, kind, findings));
  return rows;
}

Value::Map crypto_card(const Findings& findings) {
  Value::List features;
  for (std::string& feature : cpu_features()) features.emplace_back(std::move(feature));
  Value::List sealing;
  for (const SealCost& cost : findings.sealers) {
    Value::Map row = {{"sealer", word_of(cost.kind)},
                      {"record_bytes", detail::secure::kMaxContentBytes}};
    cost.s_per_gb.add_to(row, "cpu_s_per_gb");
    sealing.emplace_back(std::move(row));
  }
  Value::List handshakes;
  for (const HandshakeCost& cost : findings.handshakes) {
    Value::Map row = {{"proof", cost.proof}};
    cost.client_ms.add_to(row, "client_cpu_ms");
    cost.server_ms.add_to(row, "server_cpu_ms");
    cost.per_s.add_to(row, "handshakes_per_s");
    handshakes.emplace_back(std::move(row));
  }
  return {{"cpu_features", std::move(features)},
          {"sealer", word_of(detail::secure::automatic_sealer())},
          {"openssl", OpenSSL_version(OPENSSL_VERSION_STRING)},
          {"openssl_provider", "default"},
          {"ipsec_mb", detail::secure::ipsec_mb_version()},
          {"sealing", std::move(sealing)},
          {"handshakes", std::move(handshakes)}};
}

void print_findings(const BenchSecureOptions& options, const Findings& findings) {
  const Value::Map card = machine_card();
  print_line(fmt::format("# tendon {}, {}: {}", kVersion, card.front().second.as_string(),
                         fmt::join(cpu_features(), " ")));
  print_line(fmt::format(
      "# records are sealed by {}; libipsec-mb {}, OpenSSL {} (default provider); ssl is {}",
      word_of(detail::secure::automatic_sealer()), detail::secure::ipsec_mb_version(),
      OpenSSL_version(OPENSSL_VERSION_STRING),
      findings.protections[static_cast<std::size_t>(WayKind::ssl)]));
  print_line(fmt::format(
      "# link {}{}, {}, {} rounds, the ways in turn: medians of the rounds (least..most)",
      word_of(options.link),
      options.softirq ? fmt::format(", softirq at the {}", to_string(*options.softirq)) : "",
      options.pinning == Pinning::two_cpus && usable_cpu_count() >= 2 ? "pinned to two CPUs"
                                                                      : "not pinned",
      options.rounds));
  for (const SealCost& cost : findings.sealers)
    print_line(fmt::format("# {}: takes {} s/GB of CPU to seal the longest records",
                           word_of(cost.kind), cost.s_per_gb.text()));
  for (const HandshakeCost& cost : findings.handshakes) {
    print_line(
        fmt::format("# handshake by {}: client {} ms, server {} ms of CPU; {} a second on one CPU",
                    cost.proof, cost.client_ms.text(), cost.server_ms.text(), cost.per_s.text()));
  }
  print_line("# time: one way, half a round trip. ratio: to the line without protection above it.");
  print_line(
      "# rate: messages one way. CPU: of each end; its ratio: to CPU without protection and "
      "one pass of the sealer.");
  const Table latencies(
      {{"size", 10}, {"wait", -8}, {"way", -9}, {"p50 (us)", 22}, {"p99 (us)", 22}, {"ratio", 22}});
  const Table rates({{"size", 10},
                     {"wait", -8},
                     {"way", -9},
                     {"GB/s", 22},
                     {"ratio", 22},
                     {"sender s/GB", 22},
                     {"receiver s/GB", 22},
                     {"sender ratio", 22},
                     {"receiver ratio", 22}});
  for (const bool wants_rates : {false, true}) {
    const Table& table = wants_rates ? rates : latencies;
    bool is_first = true;
    for (const Series& series : findings.series) {
      if (is_rate(series.size_bytes) != wants_rates) continue;
      if (std::exchange(is_first, false)) print_line(table.header());
      for (const auto& [kind, word] : kWords<WayKind>) {
        std::vector<std::string> cells = {std::to_string(series.size_bytes),
                                          std::string(to_string(series.policy)), std::string(word)};
        const bool has_base = unprotected(kind) != kind;
        const auto ratio = [&](double Sample::*figure, double extra) {
          return has_base ? series.ratio(kind, figure, extra).text() : "-";
        };
        const auto spread = [&](double Sample::*figure) {
          return series.spread(kind, figure).text();
        };
        if (wants_rates) {
          const double pass = has_base ? findings.seal_s_per_gb(*sealer_of(kind)) : 0;
          cells.insert(
              cells.end(),
              {spread(&Sample::gb_per_s), ratio(&Sample::gb_per_s, 0),
               spread(&Sample::sender_s_per_gb), spread(&Sample::receiver_s_per_gb),
               ratio(&Sample::sender_s_per_gb, pass), ratio(&Sample::receiver_s_per_gb, pass)});
        } else {
          cells.insert(cells.end(), {spread(&Sample::p50_us), spread(&Sample::p99_us),
                                     ratio(&Sample::p50_us, 0)});
        }
        print_line(table.row(cells));
      }
    }
  }
}

Result<void> check(const BenchSecureOptions& options) {
  for (const std::uint64_t size_bytes : options.messages) {
    if (size_bytes != 0 && size_bytes <= kMostMessageBytes) continue;
    return Error{
        ErrorCode::invalid_argument, kWhere,
        fmt::format("--messages {}; legal are 1 to {} bytes", size_bytes, kMostMessageBytes)};
  }
  return {};
}

}  // namespace

int run_bench_secure(const BenchSecureOptions& options) {
  if (const auto checked = check(options); !checked) return report(checked.error(), options.format);
  forbid_dumps();
  const auto findings = measure(options);
  if (!findings) return report(findings.error(), options.format);
  if (options.format == Format::text) {
    print_findings(options, *findings);
    return 0;
  }
  Value::Map document = benchmark_document("secure", rows_of(*findings));
  document.emplace_back("link", word_of(options.link));
  document.emplace_back("softirq", options.softirq ? Value(to_string(*options.softirq)) : Value());
  document.emplace_back("rounds", options.rounds);
  document.emplace_back("crypto", crypto_card(*findings));
  print_json(std::move(document));
  return 0;
}

Result<void> play_secure_peer(const Value& parameters) {
  forbid_dumps();
  const auto text = [&](std::string_view key) { return parameter(parameters, key).as_string(); };
  detail::secure::prefer_sealer(choice<SealerKind>(parameters, "sealer"));
  TENDON_TRY(parent, connect_to_parent(parameters));
  if (parameter(parameters, "pin").as_bool()) pin_thread(1);
  TENDON_TRY(input, make_input(parameter(parameters, "input_bytes").as_u64()));
  const auto policy = choice<WaitPolicy>(parameters, "policy");
  std::array<std::unique_ptr<Way>, kWays> ways;
  for (;;) {
    TENDON_TRY(message, parent.pipe.recv_message(row_deadline()));
    TENDON_TRY(order, Order::of(message.bytes.bytes()));
    if (order.task == Order::Task::end) return {};
    auto& way = ways[static_cast<std::size_t>(order.way)];
    if (order.task == Order::Task::open) {
      const CredentialFiles key{.key = text("bench_key")};
      const CredentialFiles certificates{
          .cert = text("bench_cert"), .cert_key = text("bench_cert_key"), .ca = text("bench_ca")};
      WayMaker maker(
          {order.way, policy, text("host"), order.way == WayKind::ssl ? certificates : key, input});
      TENDON_TRY(made, maker.connect(order.address));
      way = std::move(made);
    }
    Report report;
    if (order.task != Order::Task::open) way->begin();
    if (order.task == Order::Task::exchange) TENDON_CHECK(take_exchange(*way, order));
    if (order.task == Order::Task::stream) {
      TENDON_TRY(cpu_s, take_stream(*way, order));
      report.cpu_s = cpu_s;
    }
    if (order.task != Order::Task::open && !is_patterned(way->received(), 0)) report.wrong = 1;
    TENDON_CHECK(parent.pipe.send(std::as_bytes(std::span(&report, 1)), {}, row_deadline()));
  }
}

}  // namespace tendon::cli
