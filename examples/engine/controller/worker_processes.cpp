// SPDX-License-Identifier: Apache-2.0
#include "controller/worker_processes.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>

extern char** environ;

namespace engine {
namespace {

using namespace std::chrono_literals;

// Between two looks at a process that shall end.
constexpr auto kLook = 10ms;

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

std::string text_of(int status) {
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  return std::string("signal ") + std::to_string(WTERMSIG(status)) + " (" +
         strsignal(WTERMSIG(status)) + ")";
}

void kill_and_reap(pid_t pid) {
  kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

/// What a child begins with: no input, a process group of its own, so that Ctrl-C at a terminal
/// reaches the controller alone, and no blocked signals.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* files() const { return &files_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

void WorkerProcesses::kill(tendon::GlobalRank rank) {
  const std::lock_guard lock(mutex_);
  if (const auto hangs = running_.find(rank.value); hangs != running_.end()) {
    ::kill(hangs->second, SIGKILL);
  }
}

tendon::Result<void> WorkerProcesses::start(tendon::GlobalRank rank, const std::string& address) {
  std::vector<std::string> words;
  const auto its = commands_.by_rank.find(rank.value);
  std::istringstream text(its == commands_.by_rank.end() ? commands_.usual : its->second);
  for (std::string word; text >> word;) {
    replace_all(word, "{rank}", std::to_string(rank.value));
    replace_all(word, "{address}", address);
    words.push_back(std::move(word));
  }
  if (words.empty()) {
    return tendon::Error{tendon::ErrorCode::invalid_argument, "engine.workers",
                         "the command that starts workers is empty"};
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const std::lock_guard lock(mutex_);
  if (const auto before = running_.find(rank.value); before != running_.end()) {
    kill_and_reap(before->second);
    running_.erase(before);
  }
  const SpawnSettings settings;
  pid_t pid = 0;
  const int failure = posix_spawnp(&pid, arguments.front(), settings.files(), settings.attributes(),
                                   arguments.data(), environ);
  if (failure != 0) {
    return tendon::system_error("engine.workers", "posix_spawnp('" + words.front() + "')", failure);
  }
  running_.emplace(rank.value, pid);
  return {};
}

std::vector<WorkerProcesses::Exit> WorkerProcesses::reap() {
  std::vector<Exit> exits;
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const auto& each) {
    int status = 0;
    if (waitpid(each.second, &status, WNOHANG) != each.second) return false;
    exits.push_back({each.first, text_of(status)});
    return true;
  });
  return exits;
}

void WorkerProcesses::end(std::chrono::steady_clock::time_point until) {
  while (true) {
    (void)reap();
    {
      const std::lock_guard lock(mutex_);
      if (running_.empty() || std::chrono::steady_clock::now() >= until) break;
    }
    std::this_thread::sleep_for(kLook);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, pid] : running_) kill_and_reap(pid);
  running_.clear();
}

WorkerProcesses::~WorkerProcesses() { end(std::chrono::steady_clock::now()); }

}  // namespace engine
