// SPDX-License-Identifier: Apache-2.0
// Sends a whole checkpoint as one TensorDict from one process to another, several times on each
// path.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

#include "benchmarks/processes/verbs.hpp"
#include "cli/benchmark.hpp"
#include "cli/hasher.hpp"
#include "cli/output.hpp"
#include "cli/transfer.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "bench.checkpoint";

/// All processes of a host share the steady clock, so a one-way time can be measured.
std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::string sha256_of(const SafetensorsFile& file) {
  Hasher hasher;
  hasher.push(file.storage().owner(), file.storage().bytes());
  return hasher.finish();
}

/// Returns every tensor of the file, whole, in the order of their bytes.
Result<TensorDict> all_tensors(const SafetensorsFile& file) {
  TensorDict batch;
  for (FileWalk walk(file.header()); !walk.at_end();) {
    for (const Piece& piece : walk.next(kMaxTensorBytes)) {
      TENDON_TRY(tensor, tensor_of(file, piece));
      TENDON_CHECK(batch.try_set(escape_name(file.header().entries[piece.entry_index].name),
                                 std::move(tensor)));
    }
  }
  return batch;
}

/// The receiver's report after each round.
struct Answer {
  std::int64_t arrived_ns = 0;
  std::uint64_t equal_count = 0;
  std::uint64_t bytes_copied = 0;
  std::string sha256;

  [[nodiscard]] Result<std::string> encode() const {
    return to_json(Value(Value::Map{{"arrived_ns", arrived_ns},
                                    {"equal_count", equal_count},
                                    {"bytes_copied", bytes_copied},
                                    {"sha256", sha256}}));
  }
  [[nodiscard]] static Result<Answer> decode(Bytes json) {
    TENDON_TRY(values, parse_json(json));
    return Answer{values.find("arrived_ns")->as_i64(), values.find("equal_count")->as_u64(),
                  values.find("bytes_copied")->as_u64(), values.find("sha256")->as_string()};
  }
};

struct Row {
  std::string path;
  SendMode mode = SendMode::copy;
  std::uint64_t size_bytes = 0;
  std::uint64_t tensor_count = 0;
  double first_us = 0;
  double latency_us_p50 = 0;
  double latency_us_p99 = 0;
  double memcpy_us = 0;
  double copies = 0;  ///< bytes copied by both ends / bytes of the file, per round
  std::string sha256;

  [[nodiscard]] double gb_per_s() const {
    return static_cast<double>(size_bytes) / latency_us_p50 / 1e3;
  }
  [[nodiscard]] Value::Map to_json() const {
    return {{"path", path},
            {"mode", to_string(mode)},
            {"size_bytes", size_bytes},
            {"tensors", tensor_count},
            {"latency_us_p50", latency_us_p50},
            {"latency_us_p99", latency_us_p99},
            {"bandwidth_gb_per_s", gb_per_s()},
            {"first_us", first_us},
            {"copies", copies},
            {"sha256", sha256},
            {"verified", true},
            {"ratio", Value::Map{{"memcpy", memcpy_us / latency_us_p50}}}};
  }
};

class Round {
 public:
  Round(const SafetensorsFile& file, const TensorDict& batch, const std::string& sha256, Pipe& pipe)
      : file_(file), batch_(batch), sha256_(sha256), pipe_(pipe) {}

  /// Returns the time from the call until the receiver has the tensors [us].
  [[nodiscard]] Result<double> run(SendMode mode, std::uint64_t& receiver_bytes_copied) {
    std::int64_t sent_ns = 0;
    if (mode == SendMode::copy) {
      sent_ns = now_ns();
      TENDON_CHECK(pipe_.send(batch_, deadline_));
    } else {
      // The sender itself loads the weights into the memory that the receiver reads.
      TENDON_TRY(loan, pipe_.loan(batch_.schema(), deadline_));
      for (std::size_t i = 0; i < batch_.leaf_count(); ++i) {
        const LeafView source = leaf_view(batch_, i);
        if (source.size_bytes == 0) continue;
        TENDON_TRY(destination, loan.dict().leaf(i).try_mutable_bytes());
        std::memcpy(destination.data(), source.data, source.size_bytes);
      }
      sent_ns = now_ns();
      TENDON_CHECK(pipe_.send(std::move(loan), deadline_));
    }
    TENDON_TRY(message, pipe_.recv_message(deadline_));
    TENDON_TRY(answer, Answer::decode(message.header.bytes()));
    if (answer.sha256 != sha256_ || answer.equal_count != file_.header().entries.size()) {
      return Error{
          ErrorCode::corrupt_data, kWhere,
          fmt::format("{} of {} tensors arrived equal, SHA-256 {} instead of {}",
                      answer.equal_count, file_.header().entries.size(), answer.sha256, sha256_)};
    }
    receiver_bytes_copied = answer.bytes_copied;
    return static_cast<double>(answer.arrived_ns - sent_ns) / 1e3;
  }

 private:
  const SafetensorsFile& file_;
  const TensorDict& batch_;
  const std::string& sha256_;
  Pipe& pipe_;
  Deadline deadline_ = row_deadline();
};

Result<Row> measure_row(const BenchCheckpointOptions& options, const SafetensorsFile& file,
                        const std::string& sha256, Transport transport, SendMode mode) {
  TENDON_TRY(batch, all_tensors(file));
  TENDON_TRY(link, start_peer("checkpoint",
                              {{"file", std::filesystem::absolute(options.file).string()},
                               {"round_count", options.round_count + 1}},
                              {.name = "bench checkpoint", .transport = transport}));
  Round round(file, batch, sha256, link.pipe);
  Row row;
  row.path = to_string(link.pipe.path().kind);
  row.mode = mode;
  row.size_bytes = file.storage().size_bytes();
  row.tensor_count = file.header().entries.size();
  row.sha256 = sha256;
  std::uint64_t copied_there = 0;
  TENDON_TRY(first_us, round.run(mode, copied_there));
  row.first_us = first_us;
  std::vector<double> samples;
  for (std::uint64_t i = 0; i < options.round_count; ++i) {
    TENDON_TRY(sample, round.run(mode, copied_there));
    samples.push_back(sample);
  }
  std::ranges::sort(samples);
  row.latency_us_p50 = percentile(samples, 50);
  row.latency_us_p99 = percentile(samples, 99);
  const std::uint64_t moved = batch.size_bytes() * (options.round_count + 1);
  const std::uint64_t copied = link.pipe.stats().bytes_copied + copied_there;
  row.copies = moved == 0 ? 0 : static_cast<double>(copied) / static_cast<double>(moved);
  TENDON_CHECK(link.pipe.close(row_deadline()));
  link.process.wait();
  return row;
}

const Table& table() {
  static const Table kTable({{"path", -4},
                             {"mode", -4},
                             {"first", 9},
                             {"time", 9},
                             {"rate", 11},
                             {"x memcpy", 9},
                             {"copies", 6},
                             {"verified", -8}});
  return kTable;
}

void print_row(const Row& row) {
  print_line(table().row(
      {row.path, std::string(to_string(row.mode)), format_seconds(row.first_us / 1e6),
       format_seconds(row.latency_us_p50 / 1e6),
       row.copies < 0.5 && row.path == "shm" ? std::string("handed over")
                                             : format_rate(row.gb_per_s() * 1e9),
       format_number(row.memcpy_us / row.latency_us_p50), fmt::format("{:.0f}", row.copies),
       fmt::format("{} tensors, SHA-256", row.tensor_count)}));
}

}  // namespace

int run_bench_checkpoint(const BenchCheckpointOptions& options) {
  auto file = SafetensorsFile::open(options.file);
  if (!file) return report(file.error(), options.format);
  const std::string sha256 = sha256_of(*file);
  auto copy_us = memcpy_us(file->storage().size_bytes());
  if (!copy_us) return report(copy_us.error(), options.format);
  if (options.format == Format::text) {
    print_line(fmt::format("# {}: {} tensors, {}; one memcpy of it takes {}", options.file,
                           file->header().entries.size(),
                           format_bytes(static_cast<double>(file->storage().size_bytes())),
                           format_seconds(*copy_us / 1e6)));
    print_line("# time: from the call until the other process holds every tensor (median);");
    print_line("# copies: by Tendon, at both ends together; first: with memory never used before");
    print_line(table().header());
  }
  Value::List rows;
  for (const auto& [transport, mode] :
       {std::pair(Transport::shm, SendMode::loan), std::pair(Transport::shm, SendMode::copy),
        std::pair(Transport::tcp, SendMode::copy)}) {
    auto row = measure_row(options, *file, sha256, transport, mode);
    if (!row) {
      return report(with_context(std::move(row).error(),
                                 fmt::format("{} {}", to_string(transport), to_string(mode))),
                    options.format);
    }
    row->memcpy_us = *copy_us;
    if (options.format == Format::text) print_row(*row);
    rows.emplace_back(row->to_json());
  }
  if (options.format == Format::json) print_json(benchmark_document("checkpoint", std::move(rows)));
  return 0;
}

Result<void> play_checkpoint_peer(const Value& parameters) {
  TENDON_TRY(parent, connect_to_parent(parameters));
  Pipe& pipe = parent.pipe;
  // Opens the same file, to compare every received tensor with it.
  TENDON_TRY(file, SafetensorsFile::open(parameters.find("file")->as_string()));
  const std::uint64_t round_count = parameters.find("round_count")->as_u64();
  const Deadline deadline = row_deadline();
  for (std::uint64_t round = 0; round < round_count; ++round) {
    TENDON_TRY(batch, pipe.recv(deadline));
    Answer answer;
    answer.arrived_ns = now_ns();
    Hasher hasher;
    hasher.push(file.storage().owner(), file.header_bytes());
    const auto keep = std::make_shared<TensorDict>(std::move(batch));
    FileWalk expected(file.header());
    FileWalk walk(file.header());
    for (std::size_t i = 0; i < keep->leaf_count(); ++i) {
      TENDON_TRY(bytes, walk.accept(keep->leaf_path(i), keep->leaf(i)));
      hasher.push(keep, bytes);
    }
    while (!expected.at_end()) {
      for (const Piece& piece : expected.next(kMaxTensorBytes)) {
        TENDON_TRY(tensor, tensor_of(file, piece));
        const auto arrived = keep->find(escape_name(file.header().entries[piece.entry_index].name));
        if (arrived && bitwise_equal(tensor, *arrived)) ++answer.equal_count;
      }
    }
    answer.sha256 = hasher.finish();
    answer.bytes_copied = pipe.stats().bytes_copied;
    TENDON_TRY(json, answer.encode());
    TENDON_CHECK(pipe.send(Bytes(), {.header = as_bytes(json)}, deadline));
  }
  return pipe.close(deadline);
}

}  // namespace tendon::cli
