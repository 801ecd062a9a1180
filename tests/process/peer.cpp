// SPDX-License-Identifier: Apache-2.0
#include "process/peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "process/pipe_ends.hpp"

extern char** environ;  // NOLINT: the name that POSIX sets

namespace tendon::test {
namespace {

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, ignored))
    names.push_back(entry.path());
  std::ranges::sort(names);
  return names;
}

}  // namespace

Peer::Peer(Options options) {
  ::signal(SIGPIPE, SIG_IGN);
  auto [child_in, to] = make_pipe();
  auto [from, child_out] = make_pipe();
  to_ = std::move(to);
  from_ = std::move(from);

  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    environment[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  for (const auto& [name, value] : options.environment) environment[name] = value;
  std::vector<std::string> texts;
  for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
  std::vector<char*> environment_pointers;
  for (std::string& text : texts) environment_pointers.push_back(text.data());
  environment_pointers.push_back(nullptr);

  std::string program = TENDON_HELPER_DIR "/" + options.program;
  std::vector<char*> arguments{program.data()};
  for (std::string& argument : options.arguments) arguments.push_back(argument.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(),
                                 environment_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0) << program;
  child_out.reset();
  if (failed == 0) {
    EXPECT_EQ(line(), "ready");
  }
}

Peer::~Peer() {
  if (!ended_ && pid_ > 0) kill_and_wait();
}

void Peer::tell(const std::string& command) {
  const std::string whole = command + "\n";
  (void)!write(to_.get(), whole.data(), whole.size());
}

std::string Peer::ask(const std::string& command) {
  tell(command);
  return line();
}

std::string Peer::line() {
  for (;;) {
    if (const auto end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd wanted{from_.get(), POLLIN, 0};
    const int ready = poll(&wanted, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready != 1) {
      ADD_FAILURE() << "process " << pid_ << " does not answer";
      kill_and_wait();
      return "";
    }
    char buffer[4096];
    const ssize_t got = read(from_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return "";
    unread_.append(buffer, static_cast<std::size_t>(got));
  }
}

void Peer::signal(int number) const {
  EXPECT_EQ(kill(pid_, number), 0);
  if (number == SIGSTOP) wait_until_stopped();  // its threads may run on until then
}

void Peer::wait_until_stopped() const {
  siginfo_t stopped{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
}

int Peer::wait() {
  while (!ended_) {
    if (waitpid(pid_, &status_, 0) == pid_)
      ended_ = true;
    else if (errno != EINTR)
      break;
  }
  return status_;
}

void Peer::kill_and_wait() {
  if (!ended_) (void)kill(pid_, SIGKILL);
  wait();
}

testing::AssertionResult is_ok(const std::string& answer) {
  if (answer == "ok" || answer.starts_with("ok ")) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "answered '" << answer << "'";
}

testing::AssertionResult is_error(const std::string& answer, std::string_view code,
                                  std::string_view text) {
  if (answer.starts_with("error " + std::string(code) + " ") &&
      answer.find(text) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "not " << code << " ... " << text << " but '" << answer << "'";
}

std::string value_of(const std::string& answer) {
  EXPECT_TRUE(is_ok(answer));
  return answer.size() > 3 ? answer.substr(3) : "";
}

Residue Residue::now(const std::string& runtime_folder) {
  Residue residue;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // for the iterator's own descriptor
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.find("/proc/") == std::string::npos) residue.descriptors.push_back(target);
  }
  std::ranges::sort(residue.descriptors);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:") != std::string::npos) residue.mappings.push_back(line);
  // The folder of rendezvous sockets stays itself; other programs use /dev/shm too.
  for (std::string& name : entries_of(runtime_folder))
    if (!std::filesystem::is_directory(name)) residue.files.push_back(std::move(name));
  for (std::string& name : entries_of("/dev/shm"))
    if (name.find("tendon") != std::string::npos) residue.files.push_back(std::move(name));
  std::ranges::sort(residue.files);
  return residue;
}

testing::AssertionResult same_residue(const Residue& before, const Residue& after) {
  auto failure = testing::AssertionFailure();
  bool same = true;
  const auto compare = [&](const char* what, std::vector<std::string> old,
                           std::vector<std::string> now) {
    std::vector<std::string> more;
    std::ranges::set_difference(now, old, std::back_inserter(more));
    for (const std::string& left : more) failure << "\n" << what << " left: " << left;
    same = same && more.empty();
  };
  compare("descriptor", before.descriptors, after.descriptors);
  compare("mapping", before.mappings, after.mappings);
  compare("file", before.files, after.files);
  return same ? testing::AssertionSuccess() : failure;
}

ProcessTest::ProcessTest() {
  std::string pattern = "/tmp/tendon-test-XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  if (const char* former = getenv("TENDON_RUNTIME_DIR")) former_ = former;
  setenv("TENDON_RUNTIME_DIR", folder_.c_str(), 1);
}

ProcessTest::~ProcessTest() {
  if (former_.empty())
    unsetenv("TENDON_RUNTIME_DIR");
  else
    setenv("TENDON_RUNTIME_DIR", former_.c_str(), 1);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tendon::test
