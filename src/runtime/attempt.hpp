// SPDX-License-Identifier: Apache-2.0
// What a waiting thread does again and again, and how it is seen to get on.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendon::v0::detail {

/// Whether each of those that wait for one another has a CPU of its own.
enum class Crowd : std::uint8_t {
  fits,
  shares_cpus,  ///< a thread that waits may keep the one from running that it waits for
};

/// What operations tell the threads that wait for them.
struct Progression {
  /// What attempts have done. The time that work took was no waiting, and after it what comes next
  /// may come soon: so the spinning begins anew.
  std::atomic<std::uint64_t> moves{0};
  std::atomic<Crowd> crowd{Crowd::fits};
};
/// Null: nothing is told.
using Moves = const Progression*;

[[nodiscard]] inline std::uint64_t moved_so_far(Moves moves) noexcept {
  return moves == nullptr ? 0 : moves->moves.load(std::memory_order_relaxed);
}

/// A call without ownership of what it calls; cheaper than std::function and never allocating.
class Attempt {
 public:
  template <class F>
  Attempt(F& f)  // NOLINT(google-explicit-constructor): lambdas convert
      : object_(&f), call_([](void* object) { return (*static_cast<F*>(object))(); }) {}
  bool operator()() const { return call_(object_); }

 private:
  void* object_;
  bool (*call_)(void*);
};

/// Counts that callers use a Context. Only "has it changed" matters, so a lost count does no harm.
class Activity {
 public:
  void note() noexcept {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace tendon::v0::detail
