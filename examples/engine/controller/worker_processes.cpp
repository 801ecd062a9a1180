// SPDX-License-Identifier: Apache-2.0
#include "controller/worker_processes.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <cstring>
#include <iostream>
#include <string_view>
#include <thread>
#include <utility>

#include "controller/spawn.hpp"

namespace engine {
namespace {

using namespace std::chrono_literals;

// The interval between two looks at a process that must end.
constexpr auto kLook = 10ms;
// The nursery has imported this program and forks it; others are started.
constexpr std::string_view kForked = " -m engine.worker ";

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

tendon::Error ending() {
  return {tendon::ErrorCode::cancelled, "engine.workers", "the engine ends"};
}

std::string text_of(int status) {
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  return std::string("signal ") + std::to_string(WTERMSIG(status)) + " (" +
         strsignal(WTERMSIG(status)) + ")";
}

}  // namespace

void WorkerProcesses::start_no_more() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  if (nursery_) nursery_->cancel();
}

void WorkerProcesses::kill(tendon::GlobalRank rank) {
  const std::lock_guard lock(mutex_);
  if (const auto hangs = running_.find(rank.value); hangs != running_.end()) {
    ::kill(hangs->second, SIGKILL);
  }
}

tendon::Result<void> WorkerProcesses::prepare() {
  if (commands_.nursery.empty()) return {};
  TENDON_TRY(opened, Nursery::open(commands_.nursery));
  const std::lock_guard lock(mutex_);
  nursery_ = std::move(opened);
  return {};
}

tendon::Result<void> WorkerProcesses::start(tendon::GlobalRank rank, const std::string& address) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto before = running_.find(rank.value); before != running_.end()) {
      const int status = kill_and_reap(before->second);
      replaced_.push_back({rank.value, before->second, text_of(status), true});
      running_.erase(before);
    }
  }
  const auto its = commands_.by_rank.find(rank.value);
  std::string command = its == commands_.by_rank.end() ? commands_.usual : its->second;
  replace_all(command, "{rank}", std::to_string(rank.value));
  replace_all(command, "{address}", address);
  // Without the lock: the first call waits until the nursery is ready.
  TENDON_TRY(pid, born(command));
  const std::lock_guard lock(mutex_);
  if (ends_) {
    (void)kill_and_reap(pid);
    return ending();
  }
  running_.insert_or_assign(rank.value, pid);
  return {};
}

tendon::Result<pid_t> WorkerProcesses::born(const std::string& command) {
  std::shared_ptr<Nursery> nursery;
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return ending();
    nursery = nursery_;
  }
  if (nursery && command.find(kForked) != std::string::npos) {
    auto forked = nursery->start(command);
    if (forked.has_value()) return forked;
    const std::lock_guard lock(mutex_);
    if (ends_) return ending();
    if (std::exchange(nursery_, nullptr)) {
      std::cerr << "engine_controller: " << forked.error().detail << "; workers start without it\n";
    }
  }
  return spawn(words_of(command));
}

std::vector<WorkerProcesses::Exit> WorkerProcesses::reap() {
  const std::lock_guard lock(mutex_);
  std::vector<Exit> exits = std::exchange(replaced_, {});
  std::erase_if(running_, [&](const auto& each) {
    int status = 0;
    if (waitpid(each.second, &status, WNOHANG) != each.second) return false;
    exits.push_back({each.first, each.second, text_of(status)});
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
  for (const auto& [rank, pid] : running_) (void)kill_and_reap(pid);
  running_.clear();
}

WorkerProcesses::~WorkerProcesses() { end(std::chrono::steady_clock::now()); }

}  // namespace engine
