// SPDX-License-Identifier: Apache-2.0
#include "process/command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "process/pipe_ends.hpp"

extern char** environ;  // NOLINT: the name that POSIX sets

namespace tendon::test {
Command::Command(const std::vector<std::string>& arguments, std::string program) {
  auto [out, child_out] = make_pipe();
  auto [err, child_err] = make_pipe();
  out_.fd = std::move(out);
  err_.fd = std::move(err);
  std::vector<std::string> texts = arguments;
  std::vector<char*> pointers{program.data()};
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_err.get(), STDERR_FILENO);
  const int failed =
      posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0) << program;
}

Command::~Command() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Command::read_some() {
  std::vector<pollfd> wanted;
  std::vector<Stream*> streams;
  for (Stream* stream : {&out_, &err_}) {
    if (!stream->fd) continue;
    wanted.push_back({stream->fd.get(), POLLIN, 0});
    streams.push_back(stream);
  }
  if (wanted.empty()) return false;
  const int ready = poll(wanted.data(), wanted.size(), kPatienceMs);
  if (ready < 0 && errno == EINTR) return true;
  if (ready <= 0) {
    ADD_FAILURE() << "the command says nothing and does not end; stderr so far: " << err_.text;
    kill(pid_, SIGKILL);
    return true;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].revents == 0) continue;
    char buffer[4096];
    const ssize_t got = read(wanted[i].fd, buffer, sizeof buffer);
    if (got > 0)
      streams[i]->text.append(buffer, static_cast<std::size_t>(got));
    else if (got == 0 || errno != EINTR)
      streams[i]->fd.reset();
  }
  return true;
}

std::string Command::wait_for_err(std::string_view prefix) {
  while (true) {
    for (auto end = err_.text.find('\n', err_seen_); end != std::string::npos;
         end = err_.text.find('\n', err_seen_)) {
      const std::string line = err_.text.substr(err_seen_, end - err_seen_);
      err_seen_ = end + 1;
      if (line.starts_with(prefix)) return line.substr(prefix.size());
    }
    if (!read_some()) {
      ADD_FAILURE() << "the command ended without '" << prefix << "': " << err_.text;
      return "";
    }
  }
}

bool Command::has_said(std::string_view text) {
  while (err_.fd) {
    pollfd ready{err_.fd.get(), POLLIN, 0};
    if (poll(&ready, 1, 0) != 1) break;
    read_some();
  }
  return err_.text.find(text) != std::string::npos;
}

void Command::signal(int number) const { EXPECT_EQ(kill(pid_, number), 0); }

void Command::wait_until_stopped() {
  int status = 0;
  while (waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  EXPECT_TRUE(WIFSTOPPED(status)) << "the command ended";
  if (!WIFSTOPPED(status)) pid_ = -1;
}

Ended Command::finish() {
  while (read_some()) {
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, out_.text, err_.text};
}

Ended run_tendon(const std::vector<std::string>& arguments) { return Command(arguments).finish(); }

Ended run_processes(const std::vector<std::string>& arguments) {
  return Command(arguments, TENDON_PROCESSES_PATH).finish();
}

}  // namespace tendon::test
