// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <random>
#include <string_view>
#include <tendon/core/result.hpp>
#include <thread>
#include <utility>

#include "cli/process.hpp"
#include "core/thread.hpp"

namespace tendon::cli {

/// Kills a process (SIGKILL), asleep or awake, at a random moment within kStretch.
///
/// Owns:    a thread, which it joins. The victim must outlive it.
/// Threads: one.
/// Errors:  start(): resource_exhausted without a thread.
/// Blocks:  join() and the destructor, until the victim is killed.
class RandomKill {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kStretch{20000};

  [[nodiscard]] static Result<std::unique_ptr<RandomKill>> start(const PeerProcess& victim,
                                                                 std::mt19937& random,
                                                                 std::string_view where) {
    const std::chrono::microseconds delay(
        std::uniform_int_distribution<std::int64_t>(0, kStretch.count())(random));
    std::unique_ptr<RandomKill> kill(new RandomKill());
    TENDON_TRY(thread,
               detail::Thread::start({.name = "tendon-kill", .where = where, .task = "that kills"},
                                     [&kill = *kill, &victim, delay] {
                                       std::this_thread::sleep_for(delay);
                                       kill.killed_ = Clock::now();
                                       victim.signal(SIGKILL);
                                     }));
    kill->thread_ = std::move(thread);
    return kill;
  }
  /// Returns the time of the kill.
  [[nodiscard]] Clock::time_point join() {
    thread_.join();
    return killed_;
  }

 private:
  RandomKill() = default;
  Clock::time_point killed_;
  detail::Thread thread_;
};

}  // namespace tendon::cli
