// SPDX-License-Identifier: Apache-2.0
// Lets every blocking call time out, and measures how late it returns.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

#include "benchmarks/processes/verbs.hpp"
#include "benchmarks/processes/waiting_rows.hpp"
#include "cli/benchmark.hpp"
#include "cli/output.hpp"
#include "core/fd.hpp"

namespace tendon::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "bench.deadline";
constexpr std::chrono::milliseconds kDeadline{20};
constexpr std::chrono::milliseconds kUntilFull{1000};
constexpr std::uint64_t kMessageBytes = 1 << 20;
/// Small, so that few messages fill it.
constexpr std::uint64_t kCapBytes = 16 << 20;

/// A server that accepts connections and never sends anything.
class Tarpit {
 public:
  [[nodiscard]] static Result<Tarpit> open() {
    Tarpit tarpit;
    tarpit.socket_ = detail::OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (!tarpit.socket_ || bind(tarpit.socket_.get(), generic, length) != 0 ||
        listen(tarpit.socket_.get(), 4096) != 0 ||
        getsockname(tarpit.socket_.get(), generic, &length) != 0) {
      return system_error(kWhere, "a listening socket on 127.0.0.1", errno);
    }
    tarpit.port_ = ntohs(address.sin_port);
    return tarpit;
  }
  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  Tarpit() = default;
  detail::OwnedFd socket_;
  std::uint16_t port_ = 0;
};

Result<TensorDict> message() {
  TENDON_TRY(tensor, Tensor::zeros(DType::u8, Shape{static_cast<std::int64_t>(kMessageBytes)}));
  TensorDict batch;
  TENDON_CHECK(batch.try_set("x", std::move(tensor)));
  return batch;
}

class Calls {
 public:
  Calls(Transport transport, std::uint64_t round_count)
      : transport_(transport), round_count_(round_count) {}

  [[nodiscard]] Result<std::vector<WaitingRow>> run() {
    TENDON_CHECK(measure_waiting());
    TENDON_CHECK(measure_full());
    if (rows_.front().path == "tcp") TENDON_CHECK(measure_stopped());
    return std::move(rows_);
  }

 private:
  [[nodiscard]] ContextOptions options() const {
    // The peer of measure_stopped() is silent for long, so no lease may end the link meanwhile.
    return {.name = "bench deadline",
            .transport = transport_,
            .link_cap_bytes = kCapBytes,
            .linger = std::chrono::milliseconds(0),
            .lease = std::chrono::minutes(5)};
  }

  /// Checks that `call` fails with `timeout` (or the error of a full link), and not much after
  /// kDeadline.
  [[nodiscard]] Result<void> measure(const std::string& name,
                                     const std::function<Result<void>(Deadline)>& call) {
    WaitingRow row{.path = path_, .what = name, .mode = name};
    row.more = {{"deadline_ms", kDeadline.count()}};
    for (std::uint64_t i = 0; i < round_count_; ++i) {
      const auto start = Clock::now();
      const auto result = call(kDeadline);
      const auto elapsed = Clock::now() - start;
      if (result || (result.error().code != ErrorCode::timeout &&
                     result.error().code != ErrorCode::resource_exhausted)) {
        return Error{ErrorCode::internal, kWhere,
                     fmt::format("{} {} did not run into its deadline: {}", path_, name,
                                 result ? "it succeeded" : result.error().message())};
      }
      row.latencies_us.push_back(
          std::chrono::duration<double, std::micro>(elapsed - kDeadline).count());
    }
    rows_.push_back(std::move(row));
    return {};
  }

  template <class T>
  static Result<void> without_value(Result<T> result) {
    return result ? Result<void>() : Result<void>(std::move(result).error());
  }

  /// Measures calls whose peer never sends, connects or answers.
  [[nodiscard]] Result<void> measure_waiting() {
    TENDON_TRY(link, start_peer("idle", {}, options()));
    path_ = to_string(link.pipe.path().kind);
    TENDON_CHECK(measure(
        "recv", [&](Deadline deadline) { return without_value(link.pipe.recv(deadline)); }));
    TENDON_CHECK(measure("accept", [&](Deadline deadline) {
      return without_value(link.listener.accept(deadline));
    }));
    TENDON_TRY(tarpit, Tarpit::open());
    return measure("connect to a tarpit", [&](Deadline deadline) {
      return without_value(Pipe::connect(link.context, tarpit.address(), deadline));
    });
  }

  /// Measures sends to a peer that is alive and does not read, until nothing more fits.
  [[nodiscard]] Result<void> measure_full() {
    TENDON_TRY(batch, message());
    TENDON_TRY(link, start_peer("idle", {}, options()));
    // On a busy machine the peer may need longer than kDeadline to take messages that fit.
    while (link.pipe.send(batch, kUntilFull)) {
    }
    TENDON_CHECK(measure("send to a peer that does not read",
                         [&](Deadline deadline) { return link.pipe.send(batch, deadline); }));
    // A separate link, on which every slot is loaned and none is sent.
    TENDON_TRY(other, start_peer("idle", {}, options()));
    std::vector<Loan> held;
    while (true) {
      auto loan = other.pipe.loan(batch.schema(), kDeadline);
      if (!loan) break;
      held.push_back(*std::move(loan));
    }
    return measure("loan with all slots out", [&](Deadline deadline) {
      return without_value(other.pipe.loan(batch.schema(), deadline));
    });
  }

  /// Measures a flush to a stopped process, which acknowledges nothing.
  [[nodiscard]] Result<void> measure_stopped() {
    TENDON_TRY(batch, message());
    TENDON_TRY(link, start_peer("idle", {}, options()));
    link.process.signal(SIGSTOP);
    TENDON_CHECK(link.pipe.send(batch, std::chrono::seconds(5)));
    return measure("flush to a stopped peer",
                   [&](Deadline deadline) { return link.pipe.flush(deadline); });
  }

  Transport transport_;
  std::uint64_t round_count_;
  std::string path_;
  std::vector<WaitingRow> rows_;
};

}  // namespace

int run_bench_deadline(const BenchRobustnessOptions& options) {
  return run_waiting(
      "deadline",
      fmt::format("# how long after a deadline of {} ms a call returns", kDeadline.count()),
      options.transport, options.format,
      [&](Transport transport) { return Calls(transport, options.round_count).run(); });
}

}  // namespace tendon::cli
