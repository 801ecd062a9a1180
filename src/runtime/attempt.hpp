// SPDX-License-Identifier: Apache-2.0
// The repeated step of a waiting thread, and the counters that show its progress.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendon::v0::detail {

/// Whether each of several threads that wait for one another has a CPU of its own.
enum class Crowd : std::uint8_t {
  fits,
  shares_cpus,  ///< a waiting thread may occupy the CPU that the awaited thread needs
};

/// The news that operations leave for the threads that wait for them.
struct Progression {
  /// The number of steps done by attempts. A change restarts the spinning: the time of the work was
  /// no waiting, and the next event may follow soon.
  std::atomic<std::uint64_t> moves{0};
  std::atomic<Crowd> crowd{Crowd::fits};
};
/// Null: the caller learns nothing.
using Moves = const Progression*;

[[nodiscard]] inline std::uint64_t moved_so_far(Moves moves) noexcept {
  return moves == nullptr ? 0 : moves->moves.load(std::memory_order_relaxed);
}

/// A call without ownership of its target; cheaper than std::function, and never allocates.
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

/// Counts the uses of a Context by callers. Readers only ask whether it has changed, so a lost
/// count does no harm.
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
