// SPDX-License-Identifier: Apache-2.0
#include "controller/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <sstream>
#include <tendon/core/error.hpp>

extern char** environ;

namespace engine {
namespace {

class SpawnSettings {
 public:
  explicit SpawnSettings(int input) {
    posix_spawn_file_actions_init(&files_);
    if (input < 0) {
      posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    } else {
      posix_spawn_file_actions_adddup2(&files_, input, 0);
    }
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

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::istringstream text(command);
  for (std::string word; text >> word;) words.push_back(std::move(word));
  return words;
}

tendon::Result<pid_t> spawn(std::vector<std::string> words, int input) {
  if (words.empty()) {
    return tendon::Error{tendon::ErrorCode::invalid_argument, "engine.workers",
                         "the command that starts a process is empty"};
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const SpawnSettings settings(input);
  pid_t pid = 0;
  const int failure = posix_spawnp(&pid, arguments.front(), settings.files(), settings.attributes(),
                                   arguments.data(), environ);
  if (failure != 0) {
    return tendon::system_error("engine.workers", "posix_spawnp('" + words.front() + "')", failure);
  }
  return pid;
}

int kill_and_reap(pid_t pid) {
  kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace engine
