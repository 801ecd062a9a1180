// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <tendon/core/version.hpp>
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

constexpr std::uint64_t kDefaultEndBytes = 128ull << 20;
/// Rounds of --check: both sides write and read each byte.
constexpr std::uint64_t kCheckCount = 8;
/// Loans that are filled before measuring, so that their pages exist.
constexpr std::uint64_t kTouchCount = 8;
/// Batches on a GPU whose arrival is timed. The last of each kArrivalsEach is compared. The batch
/// behind it is not counted: the comparison has used the receiver's GPU, which is idle for the
/// others.
constexpr std::uint64_t kMostArrivals = 1000;
constexpr std::uint64_t kArrivalsEach = 8;

/// One row: mode, size and number of messages. Both processes run the same steps:
///   on a GPU an answer first, 1 round trip (the first), warm_up, count round trips, on a GPU
///   arrival_count() messages with an answer after each, warm_up and count messages one way with an
///   answer after each of the two runs, check_count round trips with known bytes.
struct Plan {
  SendMode mode = SendMode::copy;
  std::uint64_t size_bytes = 0;
  std::uint64_t warm_up_count = 0;
  std::uint64_t count = 0;
  std::uint64_t check_count = 0;
  Pinning pinning = Pinning::two_cpus;
  std::optional<Device> device{};  // where batches lie at both ends; without it, in host memory

  /// Whole turns of kArrivalsEach, one of them to warm up.
  [[nodiscard]] std::uint64_t arrival_count() const {
    if (!device) return 0;
    const std::uint64_t turns = std::max(std::min(count, kMostArrivals) / kArrivalsEach, 1ul);
    return (1 + turns) * kArrivalsEach;
  }
  [[nodiscard]] Value::Map to_parameters() const {
    return {{"mode", to_string(mode)},
            {"size_bytes", size_bytes},
            {"warm_up_count", warm_up_count},
            {"count", count},
            {"check_count", check_count},
            {"pin", pinning == Pinning::two_cpus},
            {"device", to_string(device.value_or(cpu()))}};
  }
  [[nodiscard]] static Plan of(const Value& parameters) {
    const auto number = [&](std::string_view key) { return parameters.find(key)->as_u64(); };
    const auto device = parse_device(parameters.find("device")->as_string());
    return {choice<SendMode>(parameters, "mode"),
            number("size_bytes"),
            number("warm_up_count"),
            number("count"),
            number("check_count"),
            parameters.find("pin")->as_bool() ? Pinning::two_cpus : Pinning::none,
            device == cpu() ? std::nullopt : device};
  }
};

/// Whether the bytes of this message of arrival_count() are compared.
bool is_compared(std::uint64_t number) { return number % kArrivalsEach == kArrivalsEach - 1; }

/// The time of the clock that both processes read.
std::int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

/// One end of the benchmark.
class End {
 public:
  [[nodiscard]] static Result<End> make(Pipe& pipe, const Plan& plan) {
    End end(pipe, plan.mode);
    const Shape shape{static_cast<std::int64_t>(plan.size_bytes)};
    TENDON_TRY(schema, Schema::make({{"x", DType::u8, shape}}));
    end.schema_ = std::move(schema);
    TENDON_TRY(tensor, Tensor::empty(DType::u8, shape));
    fill_patterned(tensor.mutable_bytes(), 0);
    TENDON_CHECK(end.host_.try_set("x", std::move(tensor)));
    end.batch_ = end.host_;
    end.device_ = plan.device;
    if (!plan.device) return end;
    TENDON_TRY(gpu, BenchDevice::use(*plan.device, plan.size_bytes));
    end.gpu_ = std::move(gpu);
    TENDON_CHECK(end.place());
    return end;
  }

  [[nodiscard]] Result<void> send() {
    if (mode_ == SendMode::copy) return pipe_->send(batch_, deadline_);
    TENDON_TRY(loan, take_loan());
    if (touches_left_ > 0 && !gpu_) {
      --touches_left_;
      fill_patterned(loan["x"].mutable_bytes(), 0);
    }
    return pipe_->send(std::move(loan), deadline_);
  }
  [[nodiscard]] Result<void> recv() {
    auto received = pipe_->recv({.device = device_}, deadline_);
    if (!received) return std::move(received).error();
    return gpu_ ? gpu_->wait() : Result<void>();
  }
  [[nodiscard]] Result<void> send_filled(std::uint64_t seed) {
    if (mode_ == SendMode::copy) {
      TENDON_CHECK(fill_batch(seed));
      return pipe_->send(batch_, deadline_);
    }
    TENDON_TRY(loan, take_loan());
    TENDON_CHECK(fill_loan(loan, seed));
    return pipe_->send(std::move(loan), deadline_);
  }
  /// Receives a batch, and counts it as wrong if its bytes are not those of `seed`.
  [[nodiscard]] Result<void> recv_filled(std::uint64_t seed) {
    TENDON_TRY(received, pipe_->recv({.device = device_}, deadline_));
    return compare(received, seed);
  }
  /// Sends a batch that lies on the GPU; returns the time until the receiver has it [us].
  [[nodiscard]] Result<double> time_arrival(std::uint64_t number) {
    std::optional<Loan> loan;
    if (mode_ == SendMode::loan) {
      TENDON_TRY(taken, take_loan());
      loan = std::move(taken);
    }
    if (is_compared(number)) TENDON_CHECK(loan ? fill_loan(*loan, number) : fill_batch(number));
    const std::int64_t start = now_ns();
    TENDON_CHECK(loan ? pipe_->send(*std::move(loan), deadline_) : pipe_->send(batch_, deadline_));
    TENDON_TRY(answer, pipe_->recv_message(deadline_));
    std::int64_t arrived = 0;
    if (answer.bytes.size_bytes() != sizeof arrived) {
      return Error{ErrorCode::internal, "cli.bench.pipe",
                   fmt::format("the second process answered with {} bytes, which are no time",
                               answer.bytes.size_bytes())};
    }
    std::memcpy(&arrived, answer.bytes.data(), sizeof arrived);
    return static_cast<double>(arrived - start) / 1e3;
  }
  /// The other end of time_arrival().
  [[nodiscard]] Result<void> answer_arrival(std::uint64_t number) {
    TENDON_TRY(received, pipe_->recv({.device = device_}, deadline_));
    const std::int64_t arrived = now_ns();
    if (is_compared(number)) TENDON_CHECK(compare(received, number));
    return pipe_->send(std::as_bytes(std::span(&arrived, 1)), {}, deadline_);
  }
  /// Sends a small message, which says that everything before it was taken.
  [[nodiscard]] Result<void> answer(std::uint32_t number) {
    return pipe_->send(Bytes(), {.tag = number}, deadline_);
  }
  [[nodiscard]] Result<std::uint32_t> wait_for_answer() {
    TENDON_TRY(message, pipe_->recv_message(deadline_));
    return message.tag;
  }
  [[nodiscard]] std::uint32_t wrong_count() const { return wrong_count_; }
  /// Copies to or from host memory that this end made of batches on its GPU.
  [[nodiscard]] std::uint64_t copies_through_host() const {
    const PipeStats stats = pipe_->stats();
    return stats.copies_d2h + stats.copies_h2d;
  }

 private:
  End(Pipe& pipe, SendMode mode) : pipe_(&pipe), mode_(mode) {}
  [[nodiscard]] Result<Loan> take_loan() {
    if (!device_) return pipe_->loan(schema_, deadline_);
    return pipe_->loan(schema_, {.device = *device_}, deadline_);
  }
  [[nodiscard]] Result<void> fill_batch(std::uint64_t seed) {
    fill_patterned(host_["x"].mutable_bytes(), seed);
    return gpu_ ? place() : Result<void>();
  }
  [[nodiscard]] Result<void> fill_loan(const Loan& loan, std::uint64_t seed) {
    if (!gpu_) {
      fill_patterned(loan["x"].mutable_bytes(), seed);
      return {};
    }
    fill_patterned(host_["x"].mutable_bytes(), seed);
    return gpu_->write(loan["x"], host_["x"]);
  }
  [[nodiscard]] Result<void> compare(const TensorDict& received, std::uint64_t seed) {
    TENDON_TRY(tensor, received.find("x"));
    Storage here = tensor.storage();
    if (gpu_) {
      TENDON_TRY(brought, gpu_->bring_back(tensor));
      here = std::move(brought);
    }
    const bool is_there = !gpu_ || tensor.device() == gpu_->device();
    const bool is_whole = tensor.size_bytes() == schema_->size_bytes();
    if (!is_there || !is_whole || !is_patterned(here.bytes().first(tensor.size_bytes()), seed))
      ++wrong_count_;
    return {};
  }
  [[nodiscard]] Result<void> place() {
    batch_ = TensorDict();
    TENDON_TRY(there, gpu_->put(host_));
    batch_ = std::move(there);
    return {};
  }

  Pipe* pipe_;
  SendMode mode_;
  /// One point in time for all calls, so that none of them reads the clock for it.
  Deadline deadline_ = row_deadline();
  std::optional<Device> device_;  // where received batches are to lie
  std::optional<BenchDevice> gpu_;
  std::shared_ptr<const Schema> schema_;
  TensorDict host_;
  TensorDict batch_;  // the batch that is sent: the same, or a copy on the GPU
  std::uint64_t touches_left_ = kTouchCount;
  std::uint32_t wrong_count_ = 0;
};

struct Row {
  std::string path;
  SendMode mode = SendMode::copy;
  std::uint64_t size_bytes = 0;
  double latency_us_p50 = 0;
  double latency_us_p99 = 0;
  double first_us = 0;
  double gb_per_s = 0;
  double memcpy_gb_per_s = 0;
  std::optional<std::uint32_t> wrong_count;
  // The rest is only for batches on a GPU.
  std::string device_path{};  // how they travelled
  double arrival_us_p50 = 0;
  double arrival_us_p99 = 0;
  std::uint64_t copies_through_host = 0;  // of all until arrivals were timed

  [[nodiscard]] Value::Map to_json() const {
    Value::Map row = {{"path", path},
                      {"mode", to_string(mode)},
                      {"size_bytes", size_bytes},
                      {"latency_us_p50", latency_us_p50},
                      {"latency_us_p99", latency_us_p99},
                      {"bandwidth_gb_per_s", gb_per_s},
                      {"first_us", first_us},
                      {"ratio", Value::Map{{"memcpy", gb_per_s / memcpy_gb_per_s}}}};
    if (wrong_count) row.emplace_back("wrong", *wrong_count);
    return row;
  }
};

Result<void> measure_arrivals(End& end, const Plan& plan, Row& row) {
  std::vector<double> samples;
  for (std::uint64_t i = 0; i < plan.arrival_count(); ++i) {
    TENDON_TRY(sample, end.time_arrival(i));
    if (i >= kArrivalsEach && i % kArrivalsEach != 0) samples.push_back(sample);
  }
  std::ranges::sort(samples);
  row.arrival_us_p50 = percentile(samples, 50);
  row.arrival_us_p99 = percentile(samples, 99);
  row.copies_through_host = end.copies_through_host();
  return {};
}

Result<void> measure(End& end, const Plan& plan, Row& row) {
  const auto round_trip = [&]() -> Result<double> {
    const auto start = Clock::now();
    TENDON_CHECK(end.send());
    TENDON_CHECK(end.recv());
    return elapsed_us(start);
  };
  // The peer must use the GPU before the first message, or the first messages would be staged.
  if (plan.device) TENDON_CHECK(end.wait_for_answer());
  TENDON_TRY(first, round_trip());
  row.first_us = first / 2;
  for (std::uint64_t i = 0; i < plan.warm_up_count; ++i) TENDON_CHECK(round_trip());
  std::vector<double> samples;
  samples.reserve(plan.count);
  for (std::uint64_t i = 0; i < plan.count; ++i) {
    TENDON_TRY(sample, round_trip());
    samples.push_back(sample / 2);
  }
  std::ranges::sort(samples);
  row.latency_us_p50 = percentile(samples, 50);
  row.latency_us_p99 = percentile(samples, 99);

  if (plan.device) TENDON_CHECK(measure_arrivals(end, plan, row));

  const auto stream = [&](std::uint64_t count) -> Result<double> {
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < count; ++i) TENDON_CHECK(end.send());
    TENDON_CHECK(end.wait_for_answer());
    return elapsed_us(start);
  };
  TENDON_CHECK(stream(plan.warm_up_count));
  TENDON_TRY(streamed_us, stream(plan.count));
  row.gb_per_s = static_cast<double>(plan.size_bytes * plan.count) / streamed_us / 1e3;

  for (std::uint64_t i = 0; i < plan.check_count; ++i) {
    TENDON_CHECK(end.send_filled(2 * i));
    TENDON_CHECK(end.recv_filled(2 * i + 1));
  }
  TENDON_TRY(wrong_there, end.wait_for_answer());
  if (plan.check_count > 0) row.wrong_count = end.wrong_count() + wrong_there;
  return {};
}

Plan plan_for(const BenchPipeOptions& options, Transport transport, SendMode mode,
              std::uint64_t size_bytes) {
  // A loan that nobody writes to costs the same at every size; a copy costs by the byte.
  const bool untouched = mode == SendMode::loan && transport != Transport::tcp;
  constexpr std::uint64_t kTrafficBytes = 1ull << 30;
  Plan plan{.mode = mode, .size_bytes = size_bytes, .pinning = options.pinning};
  plan.count = options.iteration_count != 0 ? options.iteration_count
               : untouched                  ? 20000
                           : std::clamp<std::uint64_t>(kTrafficBytes / size_bytes, 20, 20000);
  plan.warm_up_count = options.warm_up_count != 0 ? options.warm_up_count
                                                  : std::max<std::uint64_t>(plan.count / 10, 5);
  if (options.check == Check::every_byte) plan.check_count = kCheckCount;
  if (options.device.empty()) return plan;
  plan.device = parse_device(options.device);
  plan.check_count = std::max<std::uint64_t>(plan.check_count, 1);
  return plan;
}

Result<Row> measure_row(const BenchPipeOptions& options, Transport transport, SendMode mode,
                        std::uint64_t size_bytes) {
  const Plan plan = plan_for(options, transport, mode, size_bytes);
  Row row;
  row.mode = mode;
  row.size_bytes = size_bytes;
  TENDON_TRY(copy_us, memcpy_us(size_bytes));
  row.memcpy_gb_per_s = static_cast<double>(size_bytes) / copy_us / 1e3;
  TENDON_TRY(link, start_peer("pipe", plan.to_parameters(),
                              {.name = "bench pipe",
                               .wait_policy = options.policy,
                               .transport = transport,
                               .streams = options.streams},
                              {.security = options.security}));
  row.path = to_string(link.pipe.path().kind);
  TENDON_TRY(end, End::make(link.pipe, plan));
  Result<void> measured;
  // On a separate thread: pinning it pins neither the service thread nor the next peer.
  TENDON_TRY(
      thread,
      detail::Thread::start(
          {.name = "tendon-measure", .where = "cli.bench.pipe", .task = "that measures"}, [&] {
            if (plan.pinning == Pinning::two_cpus) pin_thread(0);
            measured = measure(end, plan, row);
          }));
  thread.join();
  TENDON_CHECK(measured);
  if (plan.device) row.device_path = link.pipe.stats().copies_h2d == 0 ? "direct" : "staged";
  TENDON_CHECK(link.pipe.close(row_deadline()));
  if (const int code = link.process.wait(); code != 0) {
    return Error{ErrorCode::internal, "cli.bench.pipe",
                 fmt::format("the second process ended with exit code {}", code)};
  }
  return row;
}

/// The transports and modes, in the order of the rows.
std::vector<std::pair<Transport, SendMode>> ways_of(const BenchPipeOptions& options) {
  std::vector<std::pair<Transport, SendMode>> ways;
  for (const Transport transport : {Transport::automatic, Transport::shm, Transport::tcp}) {
    if (options.transport ? *options.transport != transport : transport == Transport::automatic)
      continue;
    for (const SendMode mode : {SendMode::loan, SendMode::copy}) {
      // Over sockets the kernel copies a loan like anything else: shown only when asked for.
      const bool worth_showing = mode == SendMode::copy || transport != Transport::tcp;
      if (options.mode ? *options.mode == mode : worth_showing) ways.emplace_back(transport, mode);
    }
  }
  return ways;
}

const Table& table() {
  static const Table kTable({{"size", 10},
                             {"count", 10},
                             {"type", -4},
                             {"path", -4},
                             {"mode", -4},
                             {"p50", 10},
                             {"p99", 10},
                             {"first", 10},
                             {"bandwidth", 10},
                             {"memcpy", 8},
                             {"ratio", 8},
                             {"#wrong", 6}});
  return kTable;
}

void print_header(const BenchPipeOptions& options, const std::optional<BenchDeviceFacts>& gpu) {
  const Value::Map card = machine_card();
  print_line(fmt::format(
      "# tendon {}, {}, policy {}, {} stream{}, {}", kVersion, card.front().second.as_string(),
      to_string(options.policy), options.streams, options.streams == 1 ? "" : "s",
      options.pinning == Pinning::two_cpus && usable_cpu_count() >= 2 ? "pinned to two CPUs"
                                                                      : "not pinned"));
  print_line("# time: one way, half a round trip. bandwidth: messages one way, then one answer.");
  print_line(
      "# mode loan on shm: the bytes are handed over untouched, so its bandwidth is nominal.");
  if (gpu) {
    print_line(
        fmt::format("# batches lie on {}, {}, driver of CUDA {}. gpu: how they get there, {}",
                    to_string(gpu->device), gpu->name, gpu->driver,
                    "`staged` by host memory; one of eight is compared."));
    print_line(
        "# arrival [us]: from send() to the return of recv(), whose process leaves the GPU alone.");
  }
  print_line(table().header() + (gpu ? "     arrival  gpu" : ""));
  print_line(table().row(
      {"(B)", "(elements)", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", ""}));
}

void print_row(const Row& row) {
  print_line(
      table().row({std::to_string(row.size_bytes), std::to_string(row.size_bytes), "u8", row.path,
                   std::string(to_string(row.mode)), format_number(row.latency_us_p50),
                   format_number(row.latency_us_p99), format_number(row.first_us),
                   format_number(row.gb_per_s), format_number(row.memcpy_gb_per_s),
                   format_number(row.gb_per_s / row.memcpy_gb_per_s),
                   row.wrong_count ? std::to_string(*row.wrong_count) : "-"}) +
      (row.device_path.empty()
           ? ""
           : fmt::format("  {:>10}  {}", format_number(row.arrival_us_p50), row.device_path)));
}

}  // namespace

int run_bench_pipe(const BenchPipeOptions& options) {
  const std::uint64_t end_bytes =
      options.end_bytes.value_or(std::max(kDefaultEndBytes, options.begin_bytes));
  if (options.begin_bytes == 0 || options.factor < 2 || end_bytes < options.begin_bytes) {
    return report(Error{ErrorCode::invalid_argument, "cli.bench.pipe",
                        fmt::format("-b {} -e {} -f {}; legal are 1 <= b <= e and f >= 2",
                                    options.begin_bytes, end_bytes, options.factor)},
                  options.format);
  }
  const auto gpu = facts_of(options.device, "cli.bench.pipe");
  if (!gpu) return report(gpu.error(), options.format);
  if (options.format == Format::text) print_header(options, *gpu);
  Value::List rows;
  bool all_right = true;
  for (const auto& [transport, mode] : ways_of(options)) {
    for (std::uint64_t size = options.begin_bytes;; size *= options.factor) {
      auto row = measure_row(options, transport, mode, size);
      if (!row) {
        return report(
            with_context(std::move(row).error(), fmt::format("{} {} {} bytes", to_string(transport),
                                                             to_string(mode), size)),
            options.format);
      }
      all_right = all_right && row->wrong_count.value_or(0) == 0;
      if (options.format == Format::text) print_row(*row);
      Value::Map json = row->to_json();
      if (*gpu) {
        add_gpu(json, **gpu);
        json.emplace_back("device_path", row->device_path);
        json.emplace_back("arrival_us_p50", row->arrival_us_p50);
        json.emplace_back("arrival_us_p99", row->arrival_us_p99);
        json.emplace_back("copies_through_host", row->copies_through_host);
      }
      rows.emplace_back(std::move(json));
      if (size > end_bytes / options.factor) break;
    }
  }
  if (options.format == Format::json) print_json(benchmark_document("pipe", std::move(rows)));
  return all_right ? 0 : error_info(ErrorCode::corrupt_data).exit_code;
}

Result<void> play_pipe_peer(const Value& parameters) {
  TENDON_TRY(parent, connect_to_parent(parameters));
  Pipe& pipe = parent.pipe;
  const Plan plan = Plan::of(parameters);
  if (plan.pinning == Pinning::two_cpus) pin_thread(1);
  TENDON_TRY(end, End::make(pipe, plan));
  if (plan.device) TENDON_CHECK(end.answer(0));
  for (std::uint64_t i = 0; i < 1 + plan.warm_up_count + plan.count; ++i) {
    TENDON_CHECK(end.recv());
    TENDON_CHECK(end.send());
  }
  for (std::uint64_t i = 0; i < plan.arrival_count(); ++i) TENDON_CHECK(end.answer_arrival(i));
  for (const std::uint64_t count : {plan.warm_up_count, plan.count}) {
    for (std::uint64_t i = 0; i < count; ++i) TENDON_CHECK(end.recv());
    TENDON_CHECK(end.answer(0));
  }
  for (std::uint64_t i = 0; i < plan.check_count; ++i) {
    TENDON_CHECK(end.recv_filled(2 * i));
    TENDON_CHECK(end.send_filled(2 * i + 1));
  }
  TENDON_CHECK(end.answer(end.wrong_count()));
  return pipe.close(row_deadline());
}

}  // namespace tendon::cli
