// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "cli/hasher.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "cli/security_flags.hpp"
#include "cli/shown_warnings.hpp"
#include "cli/transfer.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kWhere = "cli.send";
/// The rate at which the receiver's disk is assumed to make the file durable [bytes/s].
constexpr double kSlowestDisk = 10e6;

/// Whether the header starts like one: a file that does not is of another format, whatever else is
/// wrong.
bool starts_like_safetensors(const std::string& file) {
  constexpr std::size_t kLengthBytes = 8;
  std::array<char, kLengthBytes + 1> start{};
  std::ifstream stream(file, std::ios::binary);
  return stream.read(start.data(), start.size()) && start[kLengthBytes] == '{';
}

Result<SafetensorsFile> open_file(const std::string& file) {
  auto opened = SafetensorsFile::open(file);
  if (opened) return opened;
  Error error = std::move(opened).error();
  const bool broken = error.code == ErrorCode::corrupt_data;
  if (broken || (error.code == ErrorCode::limit_exceeded && !starts_like_safetensors(file))) {
    error.code = ErrorCode::corrupt_data;
    error.detail +=
        "; a safetensors file is 8 bytes with the length of a JSON header, the header, and the "
        "tensors without gaps";
  }
  return error;
}

// Dials until the receiver answers, or the deadline.
Result<Pipe> connect(Context& context, const SendOptions& options, const Security& security,
                     Interrupt& interrupt) {
  const Interrupt::Guard end_on_signal(interrupt, [&] { (void)context.close(Deadline::now()); });
  const ShownWarnings shown("pipe.connect");  // shows that nobody listens yet
  auto pipe = Pipe::connect(context, options.address, options.step(), {.security = security});
  if (interrupt.requested()) return interrupt.error(kWhere);
  return pipe;
}

/// One transfer of one file over one pipe.
class Sender {
 public:
  Sender(const SendOptions& options, const SafetensorsFile& file, Pipe& pipe, Interrupt& interrupt)
      : options_(options),
        file_(file),
        pipe_(pipe),
        interrupt_(interrupt),
        peer_(pipe.peer().to_string()),
        walk_(file.header()) {}

  /// Returns the SHA-256 that both sides found.
  [[nodiscard]] Result<std::string> run() {
    auto sha256 = transfer();
    if (sha256) return sha256;
    if (interrupt_.requested()) return interrupt_.error(kWhere);
    // The receiver may have said why before it closed.
    if (!refused_) {
      if (auto verdict = take_verdict(1s); verdict && refused_) return std::move(*verdict).error();
    }
    if (refused_) return sha256;
    return with_context(std::move(sha256).error(),
                        fmt::format("sending '{}', {} of {} sent", options_.name,
                                    format_bytes(static_cast<double>(sent_bytes())),
                                    format_bytes(static_cast<double>(size_bytes()))));
  }

 private:
  [[nodiscard]] std::uint64_t size_bytes() const { return file_.storage().size_bytes(); }
  [[nodiscard]] std::uint64_t sent_bytes() const {
    return file_.header().size_bytes + walk_.done_bytes();
  }
  [[nodiscard]] Result<std::string> transfer();
  [[nodiscard]] Result<void> announce();
  [[nodiscard]] Result<void> send_tensors(Hasher& hasher);
  [[nodiscard]] Result<void> send_pieces(const std::vector<Piece>& pieces);
  [[nodiscard]] Result<void> lend_pieces(const std::vector<Piece>& pieces);
  [[nodiscard]] Result<void> throttle(std::chrono::steady_clock::time_point start) const;
  /// Returns the receiver's verdict, or how its end of the pipe ended, if that happens before the
  /// deadline.
  [[nodiscard]] std::optional<Result<std::string>> take_verdict(Deadline deadline);

  const SendOptions& options_;
  const SafetensorsFile& file_;
  Pipe& pipe_;
  Interrupt& interrupt_;
  std::string peer_;
  FileWalk walk_;
  bool refused_ = false;
};

std::optional<Result<std::string>> Sender::take_verdict(Deadline deadline) {
  auto message = pipe_.recv_message(deadline);
  if (!message && message.error().code == ErrorCode::timeout) return std::nullopt;
  if (!message) return std::move(message).error();
  if (message->tag != static_cast<std::uint32_t>(TransferTag::verdict)) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 fmt::format("{} answered with a message of tag {}: it is not `tendon recv`", peer_,
                             message->tag)};
  }
  auto verdict = decode_verdict(message->header.bytes(), peer_);
  refused_ = !verdict;
  return verdict;
}

Result<std::string> Sender::transfer() {
  TENDON_CHECK(announce());
  Hasher hasher;
  TENDON_CHECK(send_tensors(hasher));
  const std::string sha256 = hasher.finish();
  TENDON_TRY(json, encode_sha256(sha256));
  TENDON_CHECK(pipe_.send(
      Bytes(), {.tag = static_cast<std::uint32_t>(TransferTag::finish), .header = as_bytes(json)},
      options_.step()));
  // The receiver still has to make the file durable, which takes as long as its disk takes.
  const double patience_s = options_.timeout_s + static_cast<double>(size_bytes()) / kSlowestDisk;
  auto verdict = take_verdict(to_duration(patience_s));
  if (!verdict) {
    return Error{ErrorCode::timeout, kWhere,
                 fmt::format("{} did not confirm the file within {:.0f} s", peer_, patience_s)};
  }
  if (!*verdict) return std::move(*verdict).error();
  if (**verdict != sha256) {
    return Error{ErrorCode::corrupt_data, kWhere,
                 fmt::format("{} has SHA-256 {}, this file {}", peer_, **verdict, sha256)};
  }
  return sha256;
}

Result<void> Sender::announce() {
  TENDON_TRY(json,
             encode(Announcement{options_.name, size_bytes(), file_.header().entries.size()}));
  return pipe_.send(
      file_.header_bytes(),
      {.tag = static_cast<std::uint32_t>(TransferTag::announce), .header = as_bytes(json)},
      options_.step());
}

Result<void> Sender::send_tensors(Hasher& hasher) {
  std::uint64_t chunk_bytes = kChunkBytes;
  if (options_.max_rate_mb_per_s > 0) {
    // About ten messages a second, so that the rate is even.
    const double tenth = options_.max_rate_mb_per_s * 1e5;
    chunk_bytes = std::clamp(static_cast<std::uint64_t>(tenth), std::uint64_t{4096}, kChunkBytes);
  }
  Progress progress(options_.progress, options_.name, size_bytes());
  const auto start = std::chrono::steady_clock::now();
  // The whole file at once: hashing may run ahead of the transfer or behind it.
  hasher.push(file_.storage().owner(), file_.storage().bytes());
  while (!walk_.at_end()) {
    const std::vector<Piece> pieces = walk_.next(chunk_bytes);
    TENDON_CHECK(options_.mode == SendMode::loan ? lend_pieces(pieces) : send_pieces(pieces));
    progress.update(sent_bytes());
    if (auto verdict = take_verdict(Deadline::now())) {
      if (!*verdict) return std::move(*verdict).error();
      return Error{ErrorCode::protocol_violation, kWhere,
                   fmt::format("{} confirmed the file before it was whole", peer_)};
    }
    TENDON_CHECK(throttle(start));
  }
  return {};
}

Result<void> Sender::throttle(std::chrono::steady_clock::time_point start) const {
  if (options_.max_rate_mb_per_s <= 0) return {};
  const double due_s = static_cast<double>(sent_bytes()) / (options_.max_rate_mb_per_s * 1e6);
  const auto due = start + to_duration(due_s);
  while (std::chrono::steady_clock::now() < due) {
    if (interrupt_.requested()) return interrupt_.error(kWhere);
    std::this_thread::sleep_until(std::min(due, std::chrono::steady_clock::now() + 100ms));
  }
  return {};
}

Result<void> Sender::send_pieces(const std::vector<Piece>& pieces) {
  TensorDict batch;
  for (const Piece& piece : pieces) {
    TENDON_TRY(tensor, tensor_of(file_, piece));
    TENDON_CHECK(batch.try_set(escape_name(file_.header().entries[piece.entry_index].name),
                               std::move(tensor)));
  }
  return pipe_.send(batch, options_.step());
}

Result<void> Sender::lend_pieces(const std::vector<Piece>& pieces) {
  std::vector<LeafSpec> leaves;
  std::vector<Tensor> sources;
  for (const Piece& piece : pieces) {
    TENDON_TRY(tensor, tensor_of(file_, piece));
    leaves.push_back({escape_name(file_.header().entries[piece.entry_index].name), tensor.dtype(),
                      tensor.shape()});
    sources.push_back(std::move(tensor));
  }
  TENDON_TRY(schema, Schema::make(leaves));
  TENDON_TRY(loan, pipe_.loan(schema, options_.step()));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    TENDON_TRY(source, sources[i].try_bytes());
    if (source.empty()) continue;
    TENDON_TRY(destination, loan.dict().leaf(i).try_mutable_bytes());
    std::memcpy(destination.data(), source.data(), source.size());
  }
  return pipe_.send(std::move(loan), options_.step());
}

int print_result(const SendOptions& options, const Pipe& pipe, std::uint64_t size_bytes,
                 double seconds, const std::string& sha256) {
  const PipeStats stats = pipe.stats();
  const Path path = pipe.path();
  if (options.format == Format::json) {
    print_json({{"file", options.file},
                {"size_bytes", size_bytes},
                {"seconds", seconds},
                {"gb_per_s", static_cast<double>(size_bytes) / seconds / 1e9},
                {"sha256", sha256},
                {"verified", true},
                {"peer", pipe.peer().to_string()},
                {"peer_identity", pipe.peer().identity},
                {"peer_proof", to_string(pipe.peer().proof)},
                {"path", to_string(path.kind)},
                {"path_reason", path.reason},
                {"mode", to_string(options.mode)},
                {"loans_sent", stats.loans_sent},
                {"copies", stats.copies},
                {"bytes_copied", stats.bytes_copied}});
    return 0;
  }
  print_line(fmt::format("{}  {} bytes  {}  {}  {}  sha256 {}  verified by {}", options.file,
                         size_bytes, format_seconds(seconds),
                         format_rate(static_cast<double>(size_bytes) / seconds),
                         to_string(path.kind), sha256, proved_text(pipe.peer())));
  return 0;
}

}  // namespace

int run_send(SendOptions options) {
  if (options.name.empty()) options.name = std::filesystem::path(options.file).filename().string();
  Interrupt interrupt;
  const auto fail = [&](const Error& error) {
    const int code = report(error, options.format);
    return interrupt.requested() ? interrupt.exit_code() : code;
  };
  if (auto named = check_file_name(options.name); !named) return fail(named.error());
  auto security = load_security(options.security);
  if (!security) return fail(security.error());
  if (auto started = interrupt.start(); !started) return fail(started.error());
  auto file = open_file(options.file);
  if (!file) return fail(file.error());
  // Reads ahead: the pages are needed soon. This is only advice, so the result does not matter.
  const Storage& storage = file->storage();
  (void)madvise(storage.data(), storage.size_bytes(), MADV_WILLNEED);

  auto context = Context::create({.name = "tendon send",
                                  .transport = options.transport,
                                  .link_cap_bytes = kTransferCapBytes,
                                  .pool_cap_bytes = kTransferCapBytes});
  if (!context) return fail(context.error());
  auto pipe = connect(*context, options, *security, interrupt);
  if (!pipe) return fail(pipe.error());
  const Interrupt::Guard cancel_on_signal(interrupt, [&] { pipe->cancel(); });
  const auto start = std::chrono::steady_clock::now();
  auto sha256 = Sender(options, *file, *pipe, interrupt).run();
  if (!sha256) return fail(sha256.error());
  const double seconds = seconds_since(start);
  // The receiver has confirmed the file: a failure to close changes nothing.
  (void)pipe->close(1s);
  return print_result(options, *pipe, storage.size_bytes(), seconds, *sha256);
}

}  // namespace tendon::cli
