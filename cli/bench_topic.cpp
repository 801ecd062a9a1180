// SPDX-License-Identifier: Apache-2.0
// `tendon bench topic`: a topic with one publisher here and subscribers in a second process, each
// with a Context of its own.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/core/version.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

#include "cli/bench.hpp"
#include "cli/bench_bytes.hpp"
#include "cli/bench_device.hpp"
#include "cli/benchmark.hpp"
#include "cli/output.hpp"
#include "core/thread.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "cli.bench.topic";
constexpr std::uint64_t kDefaultEndBytes = 128ull << 20;
/// The readers compare the bytes of the first sample on a GPU, and of one in each kComparedEach.
constexpr std::uint64_t kComparedEach = 4;
/// Successive samples have kSeeds different contents, so that an old sample is detected.
constexpr std::uint64_t kSeeds = 3;

/// One row. Both processes run the same steps: warm_up + count round trips, then count samples one
/// way, and an answer.
struct Plan {
  SendMode mode = SendMode::copy;
  LoanUse loans = LoanUse::untouched;
  std::uint64_t size_bytes = 0;
  std::uint64_t warm_up_count = 0;
  std::uint64_t count = 0;
  std::uint64_t reader_count = 1;
  Pinning pinning = Pinning::two_cpus;
  std::optional<Device> device{};  // where samples lie, and are received; else in host memory

  [[nodiscard]] Value::Map to_parameters() const {
    return {{"warm_up_count", warm_up_count},
            {"count", count},
            {"reader_count", reader_count},
            {"size_bytes", size_bytes},
            {"device", to_string(device.value_or(cpu()))},
            {"pin", pinning == Pinning::two_cpus}};
  }
};

/// The seed of the bytes of a sample on a GPU.
std::uint64_t seed_of(std::uint64_t sequence) { return sequence % kSeeds; }

/// Publishes samples of one size.
class Source {
 public:
  [[nodiscard]] static Result<Source> make(Publisher& publisher, const Plan& plan) {
    Source source(publisher, plan);
    const Shape shape{static_cast<std::int64_t>(plan.size_bytes)};
    TENDON_TRY(schema, Schema::make({{"x", DType::u8, shape}}));
    source.schema_ = std::move(schema);
    TENDON_TRY(tensor, Tensor::zeros(DType::u8, shape));
    TENDON_CHECK(source.batch_.try_set("x", std::move(tensor)));
    if (!plan.device) return source;
    TENDON_TRY(gpu, BenchDevice::use(*plan.device, plan.size_bytes));
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      fill_patterned(source.batch_["x"].mutable_bytes(), seed);
      TENDON_TRY(there, gpu.put(source.batch_));
      source.on_gpu_.push_back(std::move(there));
    }
    source.gpu_ = std::move(gpu);
    return source;
  }
  /// Filling a loan is the program's own time, and is measured only where it is asked for here.
  [[nodiscard]] Result<void> publish() {
    ++sequence_;
    if (mode_ == SendMode::copy) {
      return done(
          publisher_->publish(on_gpu_.empty() ? batch_ : on_gpu_[seed_of(sequence_)], deadline_));
    }
    TENDON_TRY(loan, publisher_->loan(schema_));
    if (loans_ == LoanUse::filled)
      std::ranges::fill(loan["x"].span<std::uint8_t>(), std::uint8_t{1});
    return done(publisher_->publish(std::move(loan), deadline_));
  }

 private:
  Source(Publisher& publisher, const Plan& plan)
      : publisher_(&publisher), mode_(plan.mode), loans_(plan.loans) {}
  [[nodiscard]] static Result<void> done(const Result<Published>& published) {
    return published ? Result<void>() : Result<void>(published.error());
  }

  Publisher* publisher_;
  SendMode mode_;
  LoanUse loans_;
  Deadline deadline_ = row_deadline();
  std::shared_ptr<const Schema> schema_;
  TensorDict batch_;
  std::optional<BenchDevice> gpu_;
  std::vector<TensorDict> on_gpu_;  // copies of that batch on the GPU, by seed
  std::uint64_t sequence_ = 0;      // of the last sample
};

/// The answer to a sample: the samples that all readers have lost or found wrong until then.
struct Answer {
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;
};

/// Samples on a GPU: how many were found wrong, and how the publisher copied them.
struct OnGpu {
  std::uint64_t wrong = 0;
  std::uint64_t published = 0;
  std::uint64_t copies_d2d = 0;
  std::uint64_t copies_d2h = 0;
};

struct Row {
  std::string path;
  SendMode mode = SendMode::copy;
  std::uint64_t size_bytes = 0;
  std::uint64_t reader_count = 0;
  double publish_us_p50 = 0;
  double publish_us_p99 = 0;
  double latency_us_p50 = 0;
  double latency_us_p99 = 0;
  double gb_per_s = 0;
  double memcpy_gb_per_s = 0;
  std::uint64_t lost = 0;
  std::string link{};  ///< to the first subscriber: its kind, and the reason for it
  std::optional<OnGpu> on_gpu{};

  [[nodiscard]] Value::Map to_json() const {
    Value::Map row = {{"path", path},
                      {"mode", to_string(mode)},
                      {"size_bytes", size_bytes},
                      {"readers", reader_count},
                      {"publish_us_p50", publish_us_p50},
                      {"publish_us_p99", publish_us_p99},
                      {"latency_us_p50", latency_us_p50},
                      {"latency_us_p99", latency_us_p99},
                      {"bandwidth_gb_per_s", gb_per_s},
                      {"lost", lost},
                      {"link", link},
                      {"ratio", Value::Map{{"memcpy", gb_per_s / memcpy_gb_per_s}}}};
    if (!on_gpu) return row;
    row.emplace_back("wrong", on_gpu->wrong);
    row.emplace_back("published", on_gpu->published);
    row.emplace_back("copies_d2d", on_gpu->copies_d2d);
    row.emplace_back("copies_d2h", on_gpu->copies_d2h);
    return row;
  }
};

Result<void> measure(Source& source, Subscriber& answers, const Plan& plan, Row& row) {
  const Deadline deadline = row_deadline();
  std::vector<double> publishing;
  std::vector<double> trips;
  for (std::uint64_t i = 0; i < plan.warm_up_count + plan.count; ++i) {
    const auto start = Clock::now();
    TENDON_CHECK(source.publish());
    const double published = elapsed_us(start);
    TENDON_CHECK(answers.recv(deadline));
    if (i < plan.warm_up_count) continue;
    trips.push_back(elapsed_us(start) / 2);
    publishing.push_back(published);
  }
  std::ranges::sort(publishing);
  std::ranges::sort(trips);
  row.publish_us_p50 = percentile(publishing, 50);
  row.publish_us_p99 = percentile(publishing, 99);
  row.latency_us_p50 = percentile(trips, 50);
  row.latency_us_p99 = percentile(trips, 99);
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < plan.count; ++i) TENDON_CHECK(source.publish());
  TENDON_TRY(last, answers.recv(deadline));
  row.gb_per_s = static_cast<double>(plan.size_bytes * plan.count) / elapsed_us(start) / 1e3;
  Answer answer;
  std::memcpy(&answer, last.bytes.data(), sizeof answer);
  row.lost = answer.lost;
  if (plan.device) row.on_gpu = OnGpu{.wrong = answer.wrong};
  return {};
}

std::string reader_name(std::uint64_t number) { return fmt::format("reader {}", number); }

/// The options that both nodes share.
NodeOptions node_options(const std::string& domain, std::string name, const std::string& router,
                         bool between_hosts) {
  NodeOptions options{.domain = domain, .name = std::move(name)};
  if (between_hosts) options.security.profile = Profile::plaintext;
  if (router.empty()) {
    options.peers.emplace();
  } else {
    options.routers.push_back(router);
  }
  return options;
}

Result<Row> measure_row(const BenchTopicOptions& options, Transport transport, SendMode mode,
                        std::uint64_t size_bytes, std::uint64_t reader_count) {
  constexpr std::uint64_t kTrafficBytes = 1ull << 30;
  Plan plan{.mode = mode,
            .loans = options.loans,
            .size_bytes = size_bytes,
            .reader_count = reader_count,
            .pinning = options.pinning,
            .device = options.device.empty() ? std::nullopt : parse_device(options.device)};
  plan.count = options.iteration_count != 0
                   ? options.iteration_count
                   : std::clamp<std::uint64_t>(kTrafficBytes / size_bytes, 20, 20000);
  plan.warm_up_count = std::max<std::uint64_t>(plan.count / 10, 5);
  Row row{.path = std::string(to_string(transport)),
          .mode = mode,
          .size_bytes = size_bytes,
          .reader_count = reader_count};
  TENDON_TRY(copy_us, memcpy_us(size_bytes));
  row.memcpy_gb_per_s = static_cast<double>(size_bytes) / copy_us / 1e3;

  TENDON_TRY(context,
             Context::create(
                 {.name = "bench topic", .wait_policy = options.policy, .transport = transport}));
  const std::string domain = fmt::format("bench {}", getpid());
  NodeOptions joining = node_options(domain, "publisher", options.router, options.between_hosts());
  joining.listen = options.between_hosts() ? options.listen : "127.0.0.1:0";
  TENDON_TRY(node, Node::join(context, std::move(joining), row_deadline()));
  TENDON_TRY(publisher, Publisher::declare(node, "ping", {.qos = {.overflow = Overflow::block}}));
  TENDON_TRY(answers, Subscriber::declare(node, "pong"));
  Value::Map parameters = plan.to_parameters();
  parameters.emplace_back("domain", domain);
  parameters.emplace_back("address", node.address());
  parameters.emplace_back("router", options.router);
  parameters.emplace_back("between_hosts", options.between_hosts());
  parameters.emplace_back("path", to_string(transport));
  parameters.emplace_back("policy", to_string(options.policy));
  std::istringstream by(options.readers_by);
  TENDON_TRY(process, PeerProcess::start("topic", std::move(parameters),
                                         {std::istream_iterator<std::string>(by), {}}));
  TENDON_CHECK(publisher.wait_for_subscribers(reader_count, row_deadline()));
  TENDON_CHECK(answers.wait_for_publishers(1, row_deadline()));
  TENDON_TRY(reader, node.peer_stats(reader_name(0)));
  row.link = reader.path.to_string();
  TENDON_TRY(source, Source::make(publisher, plan));
  Result<void> measured;
  // On a separate thread: pinning it pins neither the service thread nor the next peer.
  TENDON_TRY(thread, detail::Thread::start(
                         {.name = "tendon-measure", .where = kWhere, .task = "that measures"}, [&] {
                           if (plan.pinning == Pinning::two_cpus) pin_thread(0);
                           measured = measure(source, answers, plan, row);
                         }));
  thread.join();
  TENDON_CHECK(measured);
  if (row.on_gpu) {
    const PublisherStats stats = publisher.stats();
    row.on_gpu->published = stats.published;
    row.on_gpu->copies_d2d = stats.copies_d2d;
    row.on_gpu->copies_d2h = stats.copies_d2h;
  }
  if (const int code = process.wait(); code != 0) {
    return Error{ErrorCode::internal, kWhere,
                 fmt::format("the second process ended with exit code {}", code)};
  }
  return row;
}

/// A subscriber with all that it needs.
struct Reader {
  Context context;
  Node node;
  Subscriber subscriber;
  std::optional<BenchDevice> gpu{};  ///< the GPU that holds the samples
  std::uint64_t last = 0;            ///< the sequence of the last sample
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;

  /// Receives until the sample of this sequence, or a later one, has arrived.
  [[nodiscard]] Result<void> take(std::uint64_t sequence, Deadline deadline) {
    while (last < sequence) {
      TENDON_TRY(sample, gpu ? subscriber.recv({.device = gpu->device()}, deadline)
                             : subscriber.recv(deadline));
      lost += sample.sequence - last - 1;
      last = sample.sequence;
      if (gpu && last % kComparedEach == 1) TENDON_CHECK(compare(sample));
    }
    return {};
  }
  [[nodiscard]] Result<void> compare(const Sample& sample) {
    TENDON_TRY(tensor, sample.tensors->find("x"));
    TENDON_TRY(here, gpu->bring_back(tensor));
    if (!is_patterned(here.bytes().first(tensor.size_bytes()), seed_of(sample.sequence))) ++wrong;
    return {};
  }

  [[nodiscard]] static Result<Reader> make(const Value& parameters, std::uint64_t number) {
    const auto transport = choice<Transport>(parameters, "path");
    const auto policy = choice<WaitPolicy>(parameters, "policy");
    const std::string name = reader_name(number);
    // A process receives on a GPU that it uses itself: no publisher sets it up.
    std::optional<BenchDevice> gpu;
    if (const auto device = parse_device(parameter(parameters, "device").as_string());
        device != cpu()) {
      TENDON_TRY(used, BenchDevice::use(*device, parameter(parameters, "size_bytes").as_u64()));
      gpu = std::move(used);
    }
    TENDON_TRY(context,
               Context::create({.name = name, .wait_policy = policy, .transport = transport}));
    NodeOptions joining = node_options(parameter(parameters, "domain").as_string(), name,
                                       parameter(parameters, "router").as_string(),
                                       parameter(parameters, "between_hosts").as_bool());
    if (joining.peers) joining.peers->push_back(parameter(parameters, "address").as_string());
    TENDON_TRY(node, Node::join(context, std::move(joining), row_deadline()));
    TENDON_TRY(subscriber, Subscriber::declare(node, "ping"));
    return Reader{std::move(context), std::move(node), std::move(subscriber), std::move(gpu)};
  }
};

const Table& table() {
  static const Table kTable({{"size", 10},
                             {"readers", 8},
                             {"path", -4},
                             {"mode", -4},
                             {"publish", 10},
                             {"p99", 10},
                             {"p50", 10},
                             {"p99", 10},
                             {"bandwidth", 10},
                             {"memcpy", 8},
                             {"ratio", 8}});
  return kTable;
}

void print_header(const BenchTopicOptions& options, const std::optional<BenchDeviceFacts>& gpu) {
  const Value::Map card = machine_card();
  print_line(fmt::format("# tendon {}, {}, policy {}, {}", kVersion,
                         card.front().second.as_string(), to_string(options.policy),
                         options.pinning == Pinning::two_cpus && usable_cpu_count() >= 2
                             ? "pinned to two CPUs"
                             : "not pinned"));
  print_line(
      "# publish: time in the caller. p50: half of the way there and back; an answer has 16 "
      "bytes.");
  print_line("# Readers have a Context each; one thread reads from them in turn.");
  print_line(options.loans == LoanUse::filled
                 ? "# mode loan: every byte is written before the loan is handed over."
                 : "# mode loan: handed over untouched, so on shm its bandwidth is nominal.");
  if (gpu) {
    print_line(fmt::format(
        "# samples lie on {}, {}, driver of CUDA {}. d2d, d2h: copies of each by the publisher,",
        to_string(gpu->device), gpu->name, gpu->driver));
    print_line("# on the GPU and to host memory. One of four is compared.");
  }
  print_line(table().header() + (gpu ? "     d2d     d2h  #wrong" : ""));
  print_line(
      table().row({"(B)", "", "", "", "(us)", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", ""}));
}

/// The text about copies; empty without samples on a GPU.
std::string copies_of(const std::optional<OnGpu>& on_gpu) {
  if (!on_gpu) return {};
  const auto each = [&](std::uint64_t copies) {
    return format_number(static_cast<double>(copies) / static_cast<double>(on_gpu->published));
  };
  return fmt::format("  {:>6}  {:>6}  {:>6}", each(on_gpu->copies_d2d), each(on_gpu->copies_d2h),
                     on_gpu->wrong);
}

void print_row(const Row& row) {
  print_line(table().row({std::to_string(row.size_bytes), std::to_string(row.reader_count),
                          row.path, std::string(to_string(row.mode)),
                          format_number(row.publish_us_p50), format_number(row.publish_us_p99),
                          format_number(row.latency_us_p50), format_number(row.latency_us_p99),
                          format_number(row.gb_per_s), format_number(row.memcpy_gb_per_s),
                          format_number(row.gb_per_s / row.memcpy_gb_per_s)}) +
             copies_of(row.on_gpu));
}

}  // namespace

int run_bench_topic(const BenchTopicOptions& options) {
  const std::uint64_t end_bytes =
      options.end_bytes.value_or(std::max(kDefaultEndBytes, options.begin_bytes));
  if (options.begin_bytes == 0 || options.factor < 2 || end_bytes < options.begin_bytes) {
    return report(Error{ErrorCode::invalid_argument, kWhere,
                        fmt::format("-b {} -e {} -f {}; legal are 1 <= b <= e and f >= 2",
                                    options.begin_bytes, end_bytes, options.factor)},
                  options.format);
  }
  if (!options.device.empty() && options.mode == SendMode::loan) {
    return report(
        Error{
            ErrorCode::invalid_argument, kWhere,
            fmt::format("--device {} --mode loan; this benchmark copies samples that lie on a GPU",
                        options.device)},
        options.format);
  }
  const auto gpu = facts_of(options.device, kWhere);
  if (!gpu) return report(gpu.error(), options.format);
  if (options.format == Format::text) print_header(options, *gpu);
  Value::List rows;
  bool all_right = true;
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    if (options.transport && *options.transport != transport) continue;
    for (const SendMode mode : {SendMode::loan, SendMode::copy}) {
      const bool worth_showing =
          mode == SendMode::copy || (transport != Transport::tcp && options.device.empty());
      if (options.mode ? *options.mode != mode : !worth_showing) continue;
      for (std::uint64_t size = options.begin_bytes;; size *= options.factor) {
        auto row = measure_row(options, transport, mode, size, options.reader_count);
        if (!row) {
          return report(with_context(std::move(row).error(),
                                     fmt::format("{} {} {} bytes", to_string(transport),
                                                 to_string(mode), size)),
                        options.format);
        }
        all_right = all_right && (!row->on_gpu || row->on_gpu->wrong == 0);
        if (options.format == Format::text) print_row(*row);
        Value::Map json = row->to_json();
        if (*gpu) add_gpu(json, **gpu);
        rows.emplace_back(std::move(json));
        if (size > end_bytes / options.factor) break;
      }
    }
  }
  if (options.format == Format::json) print_json(benchmark_document("topic", std::move(rows)));
  return all_right ? 0 : error_info(ErrorCode::corrupt_data).exit_code;
}

Result<void> play_topic_readers(const Value& parameters) {
  const auto number = [&](std::string_view key) { return parameter(parameters, key).as_u64(); };
  std::vector<Reader> readers;
  for (std::uint64_t n = 0; n < number("reader_count"); ++n) {
    TENDON_TRY(reader, Reader::make(parameters, n));
    readers.push_back(std::move(reader));
  }
  TENDON_TRY(answers, Publisher::declare(readers.front().node, "pong"));
  TENDON_CHECK(answers.wait_for_subscribers(1, row_deadline()));
  if (parameter(parameters, "pin").as_bool()) pin_thread(1);
  const Deadline deadline = row_deadline();
  const auto take = [&](std::uint64_t sequence) -> Result<void> {
    for (Reader& reader : readers) TENDON_CHECK(reader.take(sequence, deadline));
    return {};
  };
  const auto answer = [&]() -> Result<void> {
    Answer all;
    for (const Reader& reader : readers) {
      all.lost += reader.lost;
      all.wrong += reader.wrong;
    }
    const auto answered = answers.publish(std::as_bytes(std::span(&all, 1)));
    return answered ? Result<void>() : Result<void>(answered.error());
  };
  const std::uint64_t trips = number("warm_up_count") + number("count");
  for (std::uint64_t i = 1; i <= trips; ++i) {
    TENDON_CHECK(take(i));
    TENDON_CHECK(answer());
  }
  for (std::uint64_t i = 1; i <= number("count"); ++i) TENDON_CHECK(take(trips + i));
  TENDON_CHECK(answer());
  return answers.close(row_deadline());
}

}  // namespace tendon::cli
