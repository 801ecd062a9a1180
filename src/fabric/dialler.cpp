// SPDX-License-Identifier: Apache-2.0
#include "fabric/dialler.hpp"

#include <algorithm>
#include <system_error>
#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail {

void Dialler::stop() {
  std::vector<std::thread> threads;
  {
    const Lock lock(mutex_);
    ending_ = true;
    targets_.clear();
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

Backoff Dialler::fresh_backoff() {
  auto seeded = Backoff::seeded(Backoff::kPeer);
  // Without random numbers all pause alike: no reason not to dial.
  return seeded ? *std::move(seeded) : Backoff(1, Backoff::kPeer);
}

void Dialler::want(const std::string& key, const std::string& peer, Attempt attempt) {
  {
    const Lock lock(mutex_);
    if (ending_) return;
    const auto [place, is_new] = targets_.try_emplace(key);
    if (!is_new) return;
    place->second = std::make_shared<Target>(
        Target{key, peer, std::move(attempt), fresh_backoff(), Clock::now()});
    need_thread();
  }
  changed_.notify_all();
}

void Dialler::again(const std::string& key) {
  {
    const Lock lock(mutex_);
    const auto found = targets_.find(key);
    if (found == targets_.end() || found->second->state == State::waiting) return;
    Target& target = *found->second;
    const bool lasted =
        target.state == State::settled && Clock::now() - target.settled_at > Backoff::kPeer.longest;
    if (lasted) target.backoff = fresh_backoff();
    target.due = Clock::now() + target.backoff.next();
    // One that runs was asked before it told of its success: it waits for its turn behind it.
    if (target.state == State::running) {
      found->second = std::make_shared<Target>(target);
      found->second->state = State::waiting;
    }
    found->second->state = State::waiting;
    need_thread();
  }
  changed_.notify_all();
}

void Dialler::drop(const std::string& key) {
  const Lock lock(mutex_);
  targets_.erase(key);
}

void Dialler::drop_all(std::string_view prefix) {
  const auto is_meant = [&](const auto& target) { return target->key.starts_with(prefix); };
  std::vector<std::shared_ptr<Target>> dropped;  // they end without the lock
  Lock lock(mutex_);
  std::erase_if(targets_, [&](const auto& entry) {
    if (!is_meant(entry.second)) return false;
    dropped.push_back(entry.second);
    return true;
  });
  // Also one that was dropped before.
  while (std::ranges::any_of(running_, is_meant)) changed_.wait(mutex_);
  lock.unlock();
}

void Dialler::need_thread() {
  if (idle_count_ != 0 || threads_.size() >= kMostThreads) return;
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    // The next call tries again; until then the threads that there are do the work.
    log(LogLevel::warn, "node.dial", std::string("no further thread: ") + error.what());
  }
}

std::shared_ptr<Dialler::Target> Dialler::next_waiting() {
  const auto is_tried = [&](const std::string& peer) TENDON_REQUIRES(mutex_) {
    return std::ranges::any_of(running_, [&](const auto& one) { return one->peer == peer; });
  };
  std::shared_ptr<Target> next;
  for (const auto& [key, target] : targets_) {
    if (target->state == State::waiting && (next == nullptr || target->due < next->due) &&
        !is_tried(target->peer))
      next = target;
  }
  return next;
}

void Dialler::work() {
  const Lock lock(mutex_);
  while (!ending_) {
    const auto target = next_waiting();
    if (target != nullptr && target->due <= Clock::now()) {
      run(target);
      continue;
    }
    ++idle_count_;
    changed_.wait_until(mutex_, target == nullptr ? Deadline::never() : Deadline::at(target->due));
    --idle_count_;
  }
}

void Dialler::run(const std::shared_ptr<Target>& target) {
  target->state = State::running;
  running_.push_back(target);
  if (next_waiting() != nullptr) need_thread();
  mutex_.unlock();
  const bool done = target->attempt(kPatience);
  mutex_.lock();
  std::erase(running_, target);
  target->state = done ? State::settled : State::waiting;
  target->settled_at = Clock::now();
  if (!done) target->due = Clock::now() + target->backoff.next();
  changed_.notify_all();
}

}  // namespace tendon::v0::detail
