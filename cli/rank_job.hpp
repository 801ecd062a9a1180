// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "cli/line_tagger.hpp"
#include "cli/orders.hpp"
#include "cli/rank_environment.hpp"
#include "cli/sink.hpp"
#include "cli/verbs.hpp"
#include "core/fd.hpp"

namespace tendon::cli {

/// How a rank ended.
struct RankEnd {
  enum class By : std::uint8_t { itself, launcher };
  int exit_code = 0;
  int signal_number = 0;  ///< the signal that killed it; then there is no exit code
  bool dumped_core = false;
  By by = By::itself;

  [[nodiscard]] bool is_failure() const noexcept { return exit_code != 0 || signal_number != 0; }
  /// "exit code 3", "killed by signal 9 (SIGKILL)".
  [[nodiscard]] std::string to_string() const;
};

struct Rank {
  int number;  ///< RANK
  pid_t pid;
  std::optional<RankEnd> end;
};

/// The settings of a job; all of them outlive the job.
struct JobSetup {
  const LaunchOptions& options;
  const std::string& program;  ///< from find_program()
  const RankEnvironment& environment;
  int restart;       ///< starts before this one
  int child_events;  ///< a signalfd of SIGCHLD
  sigset_t blocked;  ///< the signals that are blocked when a rank starts
  Orders& orders;
  Sink& out;
  Sink& err;
};

/// Writes the bytes that `sink` holds, however long its reader takes. Stops when the launcher is
/// killed, or when a later signal asks for the end at once.
void write_all(Sink& sink, Orders& orders);

/// One start of all ranks of this host, from the first process to the end of the last one,
/// including processes that the ranks started.
///
/// Owns:    the processes: the destructor leaves none.
/// Threads: one, the only one of the process, which must have called adopt_orphans().
/// Errors:  run(): file_not_found, permission_denied, too_many_open_files, system; a rank that
///          fails is a result.
/// Blocks:  run() until everything has ended.
/// Cost:    two pipes a rank.
class RankJob {
 public:
  explicit RankJob(const JobSetup& setup) : setup_(setup) {}
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;
  ~RankJob();

  [[nodiscard]] Result<void> run();

  [[nodiscard]] const std::vector<Rank>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] const Rank* first_failed() const noexcept;
  /// 0 when the job did its work, else the exit code of the first rank that failed.
  [[nodiscard]] int exit_code() const noexcept;

 private:
  /// Each phase ends what the one before left alive.
  enum class Phase : std::uint8_t { running, grace, terminating, killing };
  struct Stream {
    detail::OwnedFd fd;
    LineTagger tagger;
    Sink* sink;
  };

  Result<void> start(int local_rank);
  Result<int> open_stream(int local_rank, int standard_fd, detail::OwnedFd& child_end);
  void wait();
  void take_orders();
  void notice_ends();
  void advance();
  void enter(Phase phase);
  void signal_ranks(int number);
  void signal_leftover(pid_t pid);
  /// Reads some bytes; returns how many, 0 when there are none now or the stream has ended.
  std::size_t read_stream(Stream& stream);
  /// Reads all that has been written, which may be more than the sink wants at a time.
  void read_ready(Stream& stream);
  void finish_output();
  void drop_output(int stop_signal);
  void report_first_failure();
  void report_others();
  void tell(std::string_view line);
  [[nodiscard]] std::size_t running_count() const;

  JobSetup setup_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  std::optional<std::size_t> first_failed_;
  Phase phase_ = Phase::running;
  Deadline phase_end_ = Deadline::never();
  std::set<pid_t> leftovers_;  ///< children that are not ranks, whose own parents have ended
  bool ends_are_due_ = true;
  bool is_over_ = false;
};

}  // namespace tendon::cli
