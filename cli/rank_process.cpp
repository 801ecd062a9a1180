// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/process.hpp"
#include "core/fd.hpp"

namespace tendon::cli {
namespace {

/// Returns 0, or the errno that says why the file cannot be run.
int why_not_runnable(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return errno;
  if (!S_ISREG(found.st_mode)) return EACCES;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Runs in the child, where only async-signal-safe calls are allowed: all memory was allocated
/// before.
[[noreturn]] void become_program(const RankStart& start, char* const* words,
                                 char* const* environment, pid_t parent, int report_fd) {
  setpgid(0, 0);
  follow_parent(parent);
  // Each number is above 2 or the stream itself, so that none is overwritten before its turn.
  const bool has_streams = dup2(start.stdin_fd, STDIN_FILENO) >= 0 &&
                           dup2(start.stdout_fd, STDOUT_FILENO) >= 0 &&
                           dup2(start.stderr_fd, STDERR_FILENO) >= 0;
  // main() ignores them, and a program would inherit that.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &start.blocked, nullptr);
  // A path with a slash is not searched for, but execvpe() runs scripts that lack a first line.
  if (has_streams) execvpe(start.path.c_str(), words, environment);
  const int failure = errno;
  [[maybe_unused]] const ssize_t ignored = write(report_fd, &failure, sizeof failure);
  _exit(127);
}

}  // namespace

Result<std::string> find_program(const std::string& word) {
  const auto refused = [&](int failure) {
    return system_error("cli.launch", fmt::format("running '{}'", word), failure);
  };
  if (word.find('/') != std::string::npos) {
    const int failure = why_not_runnable(word);
    if (failure != 0) return refused(failure);
    return word;
  }
  const char* variable = std::getenv("PATH");
  const std::string_view path =
      variable != nullptr && *variable != '\0' ? variable : "/bin:/usr/bin";
  std::optional<int> first_failure;
  for (std::string_view rest = path; !word.empty();) {
    const std::size_t end = rest.find(':');
    const std::string folder(rest.substr(0, end));
    std::string candidate = (folder.empty() ? "." : folder) + "/" + word;
    const int failure = why_not_runnable(candidate);
    if (failure == 0) return candidate;
    if (failure != ENOENT && failure != ENOTDIR && !first_failure) first_failure = failure;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (first_failure) return refused(*first_failure);
  return Error{ErrorCode::file_not_found, "cli.launch",
               fmt::format("there is no program '{}' in PATH ({}); a program in this folder is "
                           "./{}",
                           word, path, word)};
}

Result<pid_t> start_rank(RankStart start) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("cli.launch", "pipe2", errno);
  const detail::OwnedFd report(ends[0]);
  detail::OwnedFd child_report(ends[1]);
  const std::vector<char*> words = pointers_to(start.words);
  const std::vector<char*> environment = pointers_to(start.environment);
  const pid_t parent = getpid();
  const int report_fd = child_report.get();  // an OwnedFd has no number in the child
  // fork() would run the fork handlers of the library, which close descriptors that the child
  // needs.
  const pid_t pid = _Fork();
  if (pid < 0) return system_error("cli.launch", "fork", errno);
  if (pid == 0) become_program(start, words.data(), environment.data(), parent, report_fd);
  child_report.reset();
  int failure = 0;
  ssize_t size = 0;
  while ((size = read(report.get(), &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  // An empty pipe means that exec closed it.
  if (size == 0) return pid;
  waitpid(pid, nullptr, 0);
  return system_error("cli.launch", fmt::format("running '{}'", start.path),
                      size == sizeof failure ? failure : EIO);
}

}  // namespace tendon::cli
