// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/safetensors.hpp>
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

constexpr std::string_view kWhere = "cli.recv";
/// How long Ctrl-C may stay unnoticed while nobody connects.
constexpr std::chrono::milliseconds kAcceptSlice{100};

struct Received {
  std::string file;
  std::uint64_t size_bytes = 0;
  std::uint64_t tensor_count = 0;
  double seconds = 0;         ///< from the announcement to the last byte hashed
  double commit_seconds = 0;  ///< from there until the disk had it
  std::string sha256;
};

/// Keeping an existing file is this command's own choice, and a flag changes it.
Error offer_force(Error error) {
  if (error.system_errno == EEXIST) error.detail += "; `tendon recv --force` replaces it";
  return error;
}

Result<void> check_directory(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0 && errno != ENOENT)
    return system_error(kWhere, fmt::format("stat('{}')", directory), errno);
  if (S_ISDIR(status.st_mode)) return {};
  return Error{ErrorCode::file_not_found, kWhere,
               fmt::format("there is no directory '{}'", directory)};
}

/// Takes one file from one pipe.
class Receiver {
 public:
  Receiver(const RecvOptions& options, Pipe& pipe)
      : options_(options), pipe_(pipe), peer_(pipe.peer().to_string()) {}

  [[nodiscard]] Result<Received> run() {
    auto received = take();
    if (received) return received;
    Error error = std::move(received).error();
    if (!name_.empty()) {
      error = with_context(std::move(error),
                           fmt::format("receiving '{}' from {}, {} of {} here{}", name_, peer_,
                                       format_bytes(static_cast<double>(done_bytes_)),
                                       format_bytes(static_cast<double>(size_bytes_)), kept_));
    }
    return error;
  }

  /// Sends the refusal to the sender, if it still listens.
  void refuse(const Error& error) {
    auto json = encode_refusal(error);
    if (!json) return;
    const MessageOptions verdict{.tag = static_cast<std::uint32_t>(TransferTag::verdict),
                                 .header = as_bytes(*json)};
    if (pipe_.send(Bytes(), verdict, 1s)) (void)pipe_.close(1s);
  }

 private:
  [[nodiscard]] Result<Received> take();
  [[nodiscard]] Result<Message> next_message();
  [[nodiscard]] Result<void> take_tensors(TensorDict batch, FileWalk& walk, AtomicFile& file,
                                          Hasher& hasher);
  [[nodiscard]] Result<void> confirm(const std::string& sha256);

  const RecvOptions& options_;
  Pipe& pipe_;
  std::string peer_;
  std::string name_;  ///< set after it is known to be harmless
  std::uint64_t size_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::string_view kept_ = ", nothing kept";
};

Result<Message> Receiver::next_message() {
  auto message = pipe_.recv_message(options_.step());
  if (message || message.error().code != ErrorCode::end_of_stream) return message;
  return Error{ErrorCode::protocol_violation, kWhere,
               fmt::format("{} closed the pipe before the file was whole", peer_)};
}

Result<Received> Receiver::take() {
  TENDON_TRY(first, next_message());
  const auto start = std::chrono::steady_clock::now();
  if (first.tensors || first.tag != static_cast<std::uint32_t>(TransferTag::announce)) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 fmt::format("{} does not announce a file: it is not `tendon send`", peer_)};
  }
  TENDON_TRY(announcement, decode_announcement(first.header.bytes()));
  TENDON_CHECK(check_file_name(announcement.name));
  const std::filesystem::path path = std::filesystem::path(options_.directory) / announcement.name;
  // Copied first: the bytes that were checked are written, whatever the sender does to its memory.
  const auto front = std::make_shared<const std::vector<std::byte>>(first.bytes.bytes().begin(),
                                                                    first.bytes.bytes().end());
  TENDON_TRY(header, SafetensorsHeader::parse(*front));
  if (header.size_bytes != front->size() ||
      header.size_bytes + header.data_bytes != announcement.size_bytes ||
      header.entries.size() != announcement.tensor_count) {
    return Error{
        ErrorCode::corrupt_data, kWhere,
        fmt::format("{} announces {} bytes and {} tensors; its header of {} bytes (it sent "
                    "{}) describes {} bytes and {} tensors",
                    peer_, announcement.size_bytes, announcement.tensor_count, header.size_bytes,
                    front->size(), header.size_bytes + header.data_bytes, header.entries.size())};
  }
  name_ = announcement.name;
  size_bytes_ = announcement.size_bytes;
  auto created = AtomicFile::create(path, options_.existing);
  if (!created) return offer_force(std::move(created).error());
  AtomicFile& file = *created;
  TENDON_CHECK(file.check_size(size_bytes_));
  Hasher hasher;
  Progress progress(options_.progress, name_, size_bytes_);
  TENDON_CHECK(file.write(*front));
  hasher.push(front, *front);
  done_bytes_ = header.size_bytes;

  FileWalk walk(header);
  TENDON_TRY(message, next_message());
  while (message.tensors) {
    TENDON_CHECK(take_tensors(*std::exchange(message.tensors, std::nullopt), walk, file, hasher));
    done_bytes_ = file.written_bytes();
    progress.update(done_bytes_);
    TENDON_TRY(next, next_message());
    message = std::move(next);
  }
  if (message.tag != static_cast<std::uint32_t>(TransferTag::finish) || !walk.at_end()) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 fmt::format("{} sent a message of tag {} where {} was due", peer_, message.tag,
                             walk.at_end() ? "the SHA-256" : "the next tensor")};
  }
  TENDON_TRY(announced, decode_sha256(message.header.bytes()));
  const std::string sha256 = hasher.finish();
  const double seconds = seconds_since(start);
  if (sha256 != announced) {
    return Error{ErrorCode::corrupt_data, kWhere,
                 fmt::format("SHA-256 {} arrived, {} was sent", sha256, announced)};
  }
  const auto commit_start = std::chrono::steady_clock::now();
  kept_ = "";  // an error of commit itself says what happened to the file
  if (auto committed = file.commit(); !committed) return offer_force(std::move(committed).error());
  const double commit_seconds = seconds_since(commit_start);
  // The file exists from here on: whether the sender learns of it changes nothing.
  if (auto confirmed = confirm(sha256); !confirmed)
    say(fmt::format("tendon: {} was not told: {}", peer_, confirmed.error().message()));
  return Received{path.string(), size_bytes_,    header.entries.size(),
                  seconds,       commit_seconds, sha256};
}

Result<void> Receiver::take_tensors(TensorDict batch, FileWalk& walk, AtomicFile& file,
                                    Hasher& hasher) {
  const auto keep = std::make_shared<TensorDict>(std::move(batch));
  std::vector<Bytes> pieces;
  pieces.reserve(keep->leaf_count());
  for (std::size_t i = 0; i < keep->leaf_count(); ++i) {
    TENDON_TRY(bytes, walk.accept(keep->leaf_path(i), keep->leaf(i)));
    pieces.push_back(bytes);
  }
  for (const Bytes& piece : pieces) hasher.push(keep, piece);
  return file.write(pieces);
}

Result<void> Receiver::confirm(const std::string& sha256) {
  TENDON_TRY(json, encode_sha256(sha256));
  const MessageOptions verdict{.tag = static_cast<std::uint32_t>(TransferTag::verdict),
                               .header = as_bytes(json)};
  TENDON_CHECK(pipe_.send(Bytes(), verdict, options_.step()));
  return pipe_.flush(options_.step());
}

void print_result(const RecvOptions& options, const Pipe& pipe, const Received& received) {
  const Path path = pipe.path();
  const double rate = static_cast<double>(received.size_bytes) / received.seconds;
  if (options.format == Format::json) {
    const PipeStats stats = pipe.stats();
    print_json({{"file", received.file},
                {"size_bytes", received.size_bytes},
                {"tensors", received.tensor_count},
                {"seconds", received.seconds},
                {"commit_seconds", received.commit_seconds},
                {"gb_per_s", rate / 1e9},
                {"sha256", received.sha256},
                {"verified", true},
                {"peer", pipe.peer().to_string()},
                {"peer_identity", pipe.peer().identity},
                {"peer_proof", to_string(pipe.peer().proof)},
                {"path", to_string(path.kind)},
                {"path_reason", path.reason},
                {"copies", stats.copies},
                {"bytes_copied", stats.bytes_copied}});
    return;
  }
  print_line(fmt::format("{}  {} bytes  {}  {}  {}  sha256 {}  verified  from {}", received.file,
                         received.size_bytes, format_seconds(received.seconds), format_rate(rate),
                         to_string(path.kind), received.sha256, proved_text(pipe.peer())));
}

Result<Pipe> accept(Listener& listener, const RecvOptions& options, const Interrupt& interrupt) {
  const Deadline deadline =
      options.timeout_s ? Deadline(to_duration(*options.timeout_s)) : Deadline::never();
  while (true) {
    auto pipe = listener.accept(earlier(deadline, Deadline(kAcceptSlice)));
    if (interrupt.requested()) return interrupt.error(kWhere);
    if (pipe || pipe.error().code != ErrorCode::timeout) return pipe;
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, kWhere,
                   fmt::format("nobody connected to {} within {} s", listener.address(),
                               *options.timeout_s)};
    }
  }
}

Result<void> receive_one(Listener& listener, const RecvOptions& options, Interrupt& interrupt) {
  TENDON_TRY(pipe, accept(listener, options, interrupt));
  const Interrupt::Guard cancel_on_signal(interrupt, [&] { pipe.cancel(); });
  Receiver receiver(options, pipe);
  auto received = receiver.run();
  if (interrupt.requested() && !received) return interrupt.error(kWhere);
  if (!received) {
    receiver.refuse(received.error());
    return std::move(received).error();
  }
  print_result(options, pipe, *received);
  (void)pipe.close(1s);
  return {};
}

}  // namespace

int run_recv(const RecvOptions& options) {
  Interrupt interrupt;
  const ShownWarnings shown("context.admission");  // shows the refused peers, with the reason
  const auto fail = [&](const Error& error) {
    const int code = report(error, options.format);
    return interrupt.requested() ? interrupt.exit_code() : code;
  };
  auto security = load_security(options.security);
  if (!security) return fail(security.error());
  if (auto started = interrupt.start(); !started) return fail(started.error());
  if (auto checked = check_directory(options.directory); !checked) return fail(checked.error());
  auto context = Context::create({.name = "tendon recv",
                                  .transport = options.transport,
                                  .link_cap_bytes = kTransferCapBytes,
                                  .pool_cap_bytes = kTransferCapBytes});
  if (!context) return fail(context.error());
  auto listener = Listener::bind(*context, options.address, {.security = *security});
  if (!listener) return fail(listener.error());
  say(fmt::format("tendon: listening on {}", listener->address()));
  while (true) {
    auto received = receive_one(*listener, options, interrupt);
    if (!received && interrupt.requested()) return fail(received.error());
    if (options.duration == Duration::one_file) return received ? 0 : fail(received.error());
    if (!received && received.error().code == ErrorCode::timeout && options.timeout_s)
      return fail(received.error());
    if (!received) (void)report(received.error(), options.format);
  }
}

}  // namespace tendon::cli
