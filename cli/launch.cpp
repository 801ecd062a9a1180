// SPDX-License-Identifier: Apache-2.0
// `tendon launch`: two processes watch the ranks. The user sees and signals the outer process; the
// inner process is the parent of the ranks. When either is killed, the other finds every process of
// the job below itself and ends it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "cli/descendants.hpp"
#include "cli/orders.hpp"
#include "cli/output.hpp"
#include "cli/rank_environment.hpp"
#include "cli/rank_job.hpp"
#include "cli/rank_process.hpp"
#include "cli/sink.hpp"
#include "cli/standard_streams.hpp"
#include "cli/verbs.hpp"
#include "session/nonce128.hpp"

namespace tendon::cli {
namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

Error refused(std::string detail) {
  return {ErrorCode::invalid_argument, "cli.launch", std::move(detail)};
}

Result<void> check(const LaunchOptions& options) {
  if (options.command.empty())
    return refused("no program is given: tendon launch -n 2 -- PROGRAM ARGUMENTS...");
  if (options.command.front().starts_with('-'))
    return refused(
        fmt::format("launch has no option '{}'; its own options stand before the "
                    "program, which follows '--'",
                    options.command.front()));
  if (options.node_rank >= options.node_count)
    return refused(fmt::format("--node-rank {} with --nodes {}: legal is 0 to {}",
                               options.node_rank, options.node_count, options.node_count - 1));
  if (options.node_count > 1 && options.restart_count > 0)
    return Error{ErrorCode::not_supported, "cli.launch",
                 "--restart with --nodes: the launchers of several nodes do not agree on when to "
                 "start again"};
  if (!options.output_folder.empty() && options.tagging == Tagging::raw)
    return refused("--no-tag with --output-dir: files are never tagged");
  return {};
}

Result<void> make_output_folder(const std::string& folder) {
  if (folder.empty()) return {};
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    return system_error("cli.launch", fmt::format("mkdir('{}')", folder), failure.value());
  return {};
}

// The inner process ------------------------------------------------------------------------------

Value::Map document_of(const RankJob& job, int restart) {
  Value::List ranks;
  for (const Rank& rank : job.ranks()) {
    const bool was_killed = rank.end->signal_number != 0;
    ranks.push_back(Value::Map{
        {"rank", rank.number},
        {"pid", rank.pid},
        {"exit_code", was_killed ? Value() : Value(rank.end->exit_code)},
        {"signal", was_killed ? Value(rank.end->signal_number) : Value()},
        {"ended_by_launcher", rank.end->by == RankEnd::By::launcher},
    });
  }
  const Rank* failed = job.first_failed();
  return {{"exit_code", job.exit_code()},
          {"restarts", restart},
          {"first_failed", failed == nullptr ? Value() : Value(failed->number)},
          {"ranks", std::move(ranks)}};
}

Result<int> run_jobs(const LaunchOptions& options, const std::string& program, Orders orders,
                     const sigset_t& blocked) {
  TENDON_CHECK(adopt_orphans());
  const sigset_t child_signal = set_of({SIGCHLD});
  const detail::OwnedFd child_events(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_events) return system_error("cli.launch", "signalfd", errno);
  TENDON_TRY(run_id, detail::random_nonce());
  Sink out(STDOUT_FILENO);
  std::optional<Sink> separate_err;
  if (!Sink::are_same(STDOUT_FILENO, STDERR_FILENO)) separate_err.emplace(STDERR_FILENO);
  Sink& err = separate_err ? *separate_err : out;
  for (int restart = 0;; ++restart) {
    TENDON_TRY(environment, RankEnvironment::create(options, detail::to_hex(run_id), restart));
    RankJob job({.options = options,
                 .program = program,
                 .environment = environment,
                 .restart = restart,
                 .child_events = child_events.get(),
                 .blocked = blocked,
                 .orders = orders,
                 .out = out,
                 .err = err});
    TENDON_CHECK(job.run());
    // Takes the signals that arrived after the last write, and notices the end of the pipe.
    while (orders.take()) {
    }
    const int code = job.exit_code();
    // The launcher was killed: its user wants an end, and nobody reads a report.
    if (!orders.has_giver()) return code;
    if (code == 0 || orders.stop_signal() != 0 || restart == options.restart_count) {
      if (options.format == Format::json) {
        out.push(json_line(document_of(job, restart)));
        write_all(out, orders);
      }
      if (code != 0 || out.is_open()) return code;
      if (out.failure() == EPIPE) return 128 + SIGPIPE;  // the reader has closed the pipe
      return system_error("cli.launch", "writing to stdout", out.failure());
    }
    err.push(fmt::format("tendon: restart {} of {}\n", restart + 1, options.restart_count));
  }
}

/// Returns the exit code, which the outer process repeats.
int run_inner(const LaunchOptions& options, const std::string& program, detail::OwnedFd pipe,
              const sigset_t& blocked) {
  // A signal from the terminal must arrive once, from the outer process.
  setpgid(0, 0);
  auto code = run_jobs(options, program, Orders(std::move(pipe)), blocked);
  return code ? *code : report(code.error(), options.format);
}

// The outer process ------------------------------------------------------------------------------

/// Passes signals on until the inner process has ended; returns its status from waitpid().
int watch_inner(pid_t inner, int pipe, const sigset_t& passed_on) {
  sigset_t expected = passed_on;
  sigaddset(&expected, SIGCHLD);
  // Signals that nohup or a script's '&' ignores stay ignored: sigwait() would take them although
  // they are ignored.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigismember(&passed_on, number) == 1 && sigaction(number, nullptr, &action) == 0 &&
        action.sa_handler == SIG_IGN)
      sigdelset(&expected, number);
  }
  while (true) {
    const int number = sigwaitinfo(&expected, nullptr);
    if (number < 0) continue;
    int status = 0;
    if (number == SIGCHLD) {
      if (waitpid(inner, &status, WNOHANG) == inner) return status;
      continue;
    }
    const auto byte = static_cast<unsigned char>(number);
    // The write fails when the inner process has ended, which SIGCHLD reports.
    [[maybe_unused]] const ssize_t ignored = write(pipe, &byte, 1);
    if (number == SIGTSTP) raise(SIGSTOP);
  }
}

}  // namespace

int run_launch(const LaunchOptions& options) {
  if (auto legal = check(options); !legal) return report(legal.error(), options.format);
  const auto program = find_program(options.command.front());
  if (!program) return report(program.error(), options.format);
  if (auto made = make_output_folder(options.output_folder); !made)
    return report(made.error(), options.format);
  open_missing_streams();

  const sigset_t passed_on =
      set_of({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT});
  // SIGTTOU: the inner process writes to a terminal from the background.
  sigset_t blocked_here = passed_on;
  for (const int number : {SIGCHLD, SIGTTOU}) sigaddset(&blocked_here, number);
  sigset_t blocked_before;
  sigprocmask(SIG_BLOCK, &blocked_here, &blocked_before);
  // A caller that ignores SIGCHLD would make children vanish unseen. Stopped children are of no
  // interest.
  struct sigaction children {};
  children.sa_handler = SIG_DFL;
  children.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &children, nullptr);

  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return report(system_error("cli.launch", "pipe2", errno), options.format);
  if (auto adopted = adopt_orphans(); !adopted) return report(adopted.error(), options.format);
  // Before any OwnedFd exists: a child closes those.
  const pid_t inner = fork();
  if (inner < 0) return report(system_error("cli.launch", "fork", errno), options.format);
  if (inner == 0) {
    close(ends[1]);
    return run_inner(options, *program, detail::OwnedFd(ends[0]), blocked_before);
  }
  close(ends[0]);
  const detail::OwnedFd pipe(ends[1]);
  release_stdin();
  const int status = watch_inner(inner, pipe.get(), passed_on);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  end_descendants();
  return report({ErrorCode::internal, "cli.launch",
                 fmt::format("process {}, which watches over the ranks, was killed by signal {}; "
                             "all ranks were ended",
                             inner, WTERMSIG(status))},
                options.format);
}

}  // namespace tendon::cli
