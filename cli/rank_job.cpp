// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "cli/descendants.hpp"
#include "cli/rank_process.hpp"
#include "cli/standard_streams.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;

/// The time between SIGTERM and SIGKILL.
constexpr auto kTerminationTime = 2s;

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

/// "0", "0-2, 5": the numbers are sorted.
std::string ranges_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last > i) text += fmt::format("{}{}", last > i + 1 ? "-" : ", ", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string rank_name(const Rank& rank) {
  return fmt::format("rank {} (pid {})", rank.number, rank.pid);
}

Result<detail::OwnedFd> open_null(int flags) {
  detail::OwnedFd file(open("/dev/null", flags | O_CLOEXEC));
  if (!file) return system_error("cli.launch", "open('/dev/null')", errno);
  return file;
}

int poll_timeout(const Deadline& deadline) {
  if (deadline.is_never()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<std::int64_t>(left, INT_MAX));
}

}  // namespace

void write_all(Sink& sink, Orders& orders) {
  while (sink.wanted_fd() >= 0 && orders.has_giver()) {
    std::array<pollfd, 2> wanted = {{{orders.fd(), POLLIN, 0}, {sink.wanted_fd(), POLLOUT, 0}}};
    poll(wanted.data(), wanted.size(), -1);
    while (const std::optional<Order> order = orders.take())
      if (order->kind == Order::Kind::end_now) return;
    sink.write_some();
  }
}

std::string RankEnd::to_string() const {
  if (signal_number == 0) return fmt::format("exit code {}", exit_code);
  return fmt::format("killed by signal {} ({}){}{}", signal_number, signal_name(signal_number),
                     dumped_core ? ", core dumped" : "",
                     by == By::launcher ? " from this launcher" : "");
}

RankJob::~RankJob() {
  if (!is_over_) end_descendants();
}

const Rank* RankJob::first_failed() const noexcept {
  return first_failed_ ? &ranks_[*first_failed_] : nullptr;
}

int RankJob::exit_code() const noexcept {
  const Rank* failed = first_failed();
  if (failed == nullptr) return 0;
  if (setup_.options.on_failure == OnFailure::keep_going &&
      std::ranges::any_of(ranks_,
                          [](const Rank& rank) { return rank.end && !rank.end->is_failure(); }))
    return 0;
  const RankEnd& end = *failed->end;
  // A rank that this launcher ended was ended because of the signal that the launcher got.
  if (end.by == RankEnd::By::launcher && setup_.orders.stop_signal() != 0)
    return 128 + setup_.orders.stop_signal();
  return end.signal_number != 0 ? 128 + end.signal_number : end.exit_code;
}

// Start -----------------------------------------------------------------------------------------

Result<int> RankJob::open_stream(int local_rank, int standard_fd, detail::OwnedFd& child_end) {
  const LaunchOptions& options = setup_.options;
  const int number = options.node_rank * options.local_count + local_rank;
  const bool is_out = standard_fd == STDOUT_FILENO;
  if (!options.output_folder.empty()) {
    const std::string path =
        fmt::format("{}/rank_{}.{}", options.output_folder, number, is_out ? "out" : "err");
    // The file keeps the text of earlier starts, which may say why there is another one.
    const int flags = O_WRONLY | O_CREAT | O_APPEND | (setup_.restart == 0 ? O_TRUNC : 0);
    child_end = detail::OwnedFd(open(path.c_str(), flags | O_CLOEXEC, 0666));
    if (!child_end) return system_error("cli.launch", fmt::format("open('{}')", path), errno);
    return child_end.get();
  }
  if (options.tagging == Tagging::raw) return standard_fd;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return system_error("cli.launch", fmt::format("the pipes of rank {}", number), errno);
  child_end = detail::OwnedFd(ends[1]);
  streams_.push_back({detail::OwnedFd(ends[0]), LineTagger(fmt::format("[rank {}] ", number)),
                      is_out ? &setup_.out : &setup_.err});
  // Only this end: the rank's end stays blocking, as programs expect.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
    return system_error("cli.launch", "fcntl(O_NONBLOCK)", errno);
  return ends[1];
}

Result<void> RankJob::start(int local_rank) {
  const LaunchOptions& options = setup_.options;
  detail::OwnedFd out_end;
  detail::OwnedFd err_end;
  TENDON_TRY(nothing, open_null(O_RDONLY));
  TENDON_TRY(out, open_stream(local_rank, STDOUT_FILENO, out_end));
  TENDON_TRY(err, open_stream(local_rank, STDERR_FILENO, err_end));
  // A process group in the background may not read from a terminal: it would be stopped.
  const bool gets_input = local_rank == 0 && options.node_rank == 0 && isatty(STDIN_FILENO) == 0;
  TENDON_TRY(pid, start_rank({.path = setup_.program,
                              .words = options.command,
                              .environment = setup_.environment.of(local_rank),
                              .stdin_fd = gets_input ? STDIN_FILENO : nothing.get(),
                              .stdout_fd = out,
                              .stderr_fd = err,
                              .blocked = setup_.blocked}));
  ranks_.push_back({options.node_rank * options.local_count + local_rank, pid, std::nullopt});
  return {};
}

Result<void> RankJob::run() {
  for (int local_rank = 0; local_rank < setup_.options.local_count; ++local_rank)
    TENDON_CHECK(start(local_rank));
  // The writer of stdin then sees it closed when rank 0 closes it. Another start would need it
  // again.
  if (setup_.restart == setup_.options.restart_count) release_stdin();
  while (true) {
    if (ends_are_due_) notice_ends();
    advance();
    if (running_count() == 0 && leftovers_.empty()) break;
    wait();
    if (!setup_.orders.has_giver()) {
      // The launcher was killed: its user wants an end, and nobody reads a report.
      end_descendants();
      is_over_ = true;
      return Error{ErrorCode::cancelled, "cli.launch", "the launcher was killed"};
    }
  }
  // Reaped only now: the kernel may then assign the numbers of their process groups to others.
  for (const Rank& rank : ranks_) waitpid(rank.pid, nullptr, 0);
  is_over_ = true;
  report_others();
  finish_output();
  return {};
}

// Waiting ---------------------------------------------------------------------------------------

void RankJob::wait() {
  // poll() ignores negative descriptors.
  std::vector<pollfd> wanted = {{setup_.orders.fd(), POLLIN, 0},
                                {setup_.child_events, POLLIN, 0},
                                {setup_.out.wanted_fd(), POLLOUT, 0},
                                {setup_.err.wanted_fd(), POLLOUT, 0}};
  const std::size_t first_stream = wanted.size();
  for (const Stream& stream : streams_)
    wanted.push_back({stream.sink->is_full() ? -1 : stream.fd.get(), POLLIN, 0});
  if (poll(wanted.data(), wanted.size(), poll_timeout(phase_end_)) <= 0) return;
  if (wanted[0].revents != 0) take_orders();
  if (wanted[1].revents != 0) {
    // One read may stand for several children, so the number of reads says nothing.
    std::array<signalfd_siginfo, 16> events{};
    while (read(setup_.child_events, events.data(), sizeof events) > 0) {
    }
    ends_are_due_ = true;
  }
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (wanted[first_stream + i].revents != 0) read_stream(streams_[i]);
  setup_.out.write_some();
  setup_.err.write_some();
  // A rank whose reader has closed gets the same error as if it wrote to that reader itself.
  for (Stream& stream : streams_)
    if (!stream.sink->is_open()) stream.fd.reset();
}

void RankJob::take_orders() {
  while (const std::optional<Order> order = setup_.orders.take()) {
    const int number = order->signal_number;
    switch (order->kind) {
      case Order::Kind::other:
        signal_ranks(number);
        break;
      case Order::Kind::end:
        tell(fmt::format("{}: passed on to the ranks; a second one kills them",
                         signal_name(number)));
        signal_ranks(number);
        break;
      case Order::Kind::repeat:
        // A rank is asked once only.
        if (number != setup_.orders.stop_signal()) signal_ranks(number);
        break;
      case Order::Kind::end_now:
        tell(fmt::format("{} again: killing the ranks", signal_name(number)));
        enter(Phase::killing);
        break;
    }
  }
}

std::size_t RankJob::read_stream(Stream& stream) {
  std::array<char, 64 * 1024> buffer;
  const ssize_t size = read(stream.fd.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  std::string lines;
  if (size > 0) {
    stream.tagger.feed({buffer.data(), static_cast<std::size_t>(size)}, lines);
  } else {
    stream.tagger.end(lines);
    stream.fd.reset();
  }
  stream.sink->push(lines);
  return size > 0 ? static_cast<std::size_t>(size) : 0;
}

void RankJob::read_ready(Stream& stream) {
  // Reads only what is in the pipe now: a process may write faster than this reads.
  int left = 0;
  if (!stream.fd || ioctl(stream.fd.get(), FIONREAD, &left) != 0) return;
  while (left > 0) {
    const std::size_t size = read_stream(stream);
    if (size == 0) return;
    left -= static_cast<int>(size);
  }
}

void RankJob::finish_output() {
  for (Stream& stream : streams_) {
    // Every process that could write has ended, or got the pipe without this launcher's knowledge.
    read_ready(stream);
    std::string lines;
    stream.tagger.end(lines);
    stream.sink->push(lines);
    stream.fd.reset();
  }
  while (setup_.out.wanted_fd() >= 0 || setup_.err.wanted_fd() >= 0) {
    std::array<pollfd, 3> wanted = {{{setup_.orders.fd(), POLLIN, 0},
                                     {setup_.out.wanted_fd(), POLLOUT, 0},
                                     {setup_.err.wanted_fd(), POLLOUT, 0}}};
    if (poll(wanted.data(), wanted.size(), -1) <= 0) continue;
    int stop = 0;
    while (const std::optional<Order> order = setup_.orders.take())
      if (order->kind == Order::Kind::end || order->kind == Order::Kind::end_now)
        stop = order->signal_number;
    setup_.out.write_some();
    setup_.err.write_some();
    if (!setup_.orders.has_giver()) return;
    if (stop != 0) {
      drop_output(stop);
      return;
    }
  }
}

void RankJob::drop_output(int stop_signal) {
  // Nobody reads the rest, and the user waits.
  setup_.out.drop_lines();
  setup_.err.drop_lines();
  tell(fmt::format("{}: the rest of the output is dropped", signal_name(stop_signal)));
  setup_.err.write_some();
  if (setup_.options.format != Format::json) return;
  // The next output must start on a new line.
  write_all(setup_.out, setup_.orders);
}

// Ends ------------------------------------------------------------------------------------------

std::size_t RankJob::running_count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(ranks_, [](const Rank& rank) { return !rank.end; }));
}

void RankJob::notice_ends() {
  ends_are_due_ = false;
  const bool had_failure = first_failed_.has_value();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    siginfo_t info{};
    // The rank stays unreaped: while its leader exists, nobody else's process group gets its
    // number.
    if (rank.end ||
        waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != rank.pid)
      continue;
    RankEnd end;
    if (info.si_code == CLD_EXITED) {
      end.exit_code = info.si_status;
    } else {
      end.signal_number = info.si_status;
      end.dumped_core = info.si_code == CLD_DUMPED;
      const bool was_sent = (phase_ == Phase::terminating && end.signal_number == SIGTERM) ||
                            (phase_ == Phase::killing &&
                             (end.signal_number == SIGKILL || end.signal_number == SIGTERM));
      if (was_sent) end.by = RankEnd::By::launcher;
    }
    rank.end = end;
    // If several ranks ended since the last look, one that was killed is the likelier cause.
    if (!had_failure && end.is_failure() &&
        (!first_failed_ ||
         (ranks_[*first_failed_].end->signal_number == 0 && end.signal_number != 0)))
      first_failed_ = i;
  }
  leftovers_.clear();
  for (const ChildProcess& child : child_processes()) {
    if (std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.pid == child.pid; }))
      continue;
    if (child.state == ChildProcess::State::ended)
      waitpid(child.pid, nullptr, WNOHANG);
    else
      leftovers_.insert(child.pid);
  }
  if (phase_ >= Phase::terminating)
    for (const pid_t pid : std::set(leftovers_)) signal_leftover(pid);
  if (had_failure || !first_failed_) return;
  // The last output of the rank is read before its failure is reported.
  for (Stream& stream : streams_) read_ready(stream);
  report_first_failure();
}

void RankJob::advance() {
  const bool is_ending = first_failed_ && setup_.options.on_failure == OnFailure::end_all;
  while (running_count() != 0 || !leftovers_.empty()) {
    const bool has_ranks = running_count() != 0;
    switch (phase_) {
      case Phase::running:
        if (has_ranks && !is_ending) return;
        enter(Phase::grace);
        break;
      case Phase::grace:
        // The leftovers of a failed job have nothing to finish.
        if (!phase_end_.has_passed() && !(is_ending && !has_ranks)) return;
        enter(Phase::terminating);
        break;
      case Phase::terminating:
        if (!phase_end_.has_passed()) return;
        enter(Phase::killing);
        break;
      case Phase::killing:
        return;
    }
  }
}

void RankJob::enter(Phase phase) {
  phase_ = phase;
  switch (phase) {
    case Phase::running:
      return;
    case Phase::grace:
      phase_end_ = to_duration(setup_.options.grace_s);
      return;
    case Phase::terminating:
      phase_end_ = kTerminationTime;
      signal_ranks(SIGTERM);
      // A stopped process takes SIGTERM only after it is continued.
      signal_ranks(SIGCONT);
      break;
    case Phase::killing:
      phase_end_ = Deadline::never();
      signal_ranks(SIGKILL);
      break;
  }
  for (const pid_t pid : std::set(leftovers_)) signal_leftover(pid);
}

void RankJob::signal_ranks(int number) {
  for (const Rank& rank : ranks_)
    // A rank that has left its group gets the signal itself.
    if (kill(-rank.pid, number) != 0 && !rank.end) kill(rank.pid, number);
}

void RankJob::signal_leftover(pid_t pid) {
  if (kill(pid, phase_ == Phase::killing ? SIGKILL : SIGTERM) == 0 || errno != EPERM) return;
  // This process may not end it, as after sudo: waiting for it could take for ever.
  tell(fmt::format("process {} belongs to another user and is left alone", pid));
  leftovers_.erase(pid);
}

// Messages ---------------------------------------------------------------------------------------

void RankJob::tell(std::string_view line) { setup_.err.push(fmt::format("tendon: {}\n", line)); }

void RankJob::report_first_failure() {
  const Rank& rank = ranks_[*first_failed_];
  tell(fmt::format("{} failed first: {}", rank_name(rank), rank.end->to_string()));
  if (running_count() == 0 || phase_ != Phase::running) return;
  if (setup_.options.on_failure == OnFailure::keep_going)
    tell("the other ranks go on");
  else
    tell(fmt::format("the other ranks have {} s to end by themselves (--keep-going: no limit)",
                     setup_.options.grace_s));
}

void RankJob::report_others() {
  if (!first_failed_) return;
  std::map<std::string, std::vector<int>> numbers_by_end;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (i != *first_failed_) numbers_by_end[ranks_[i].end->to_string()].push_back(ranks_[i].number);
  for (const auto& [end, numbers] : numbers_by_end)
    tell(fmt::format("{} {}: {}", numbers.size() == 1 ? "rank" : "ranks", ranges_of(numbers), end));
}

}  // namespace tendon::cli
