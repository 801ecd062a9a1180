// SPDX-License-Identifier: Apache-2.0
// What a waiting thread does again and again, and how it is seen to get on.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendon::v0::detail {

/// Counts what attempts have done while a thread waited; null: not counted. The time that work took
/// was no waiting, and after it what comes next may come soon: so the spinning begins anew.
using Moves = const std::atomic<std::uint64_t>*;

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
