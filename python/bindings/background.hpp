// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <tendon/core/mutex.hpp>

#include "core/thread.hpp"
#include "wait.hpp"

namespace tendon::python {

/// Runs `call` on a thread of its own with its whole deadline, while this thread calls `meanwhile`
/// with the GIL after each slice. If `meanwhile` throws, the call continues alone until its
/// deadline and its result is dropped. `call` must hold everything that it needs by value.
template <class F, class Meanwhile>
auto wait_beside(Deadline deadline, F call, std::chrono::milliseconds slice, Meanwhile meanwhile)
    -> std::invoke_result_t<F, Deadline> {
  using Answer = std::invoke_result_t<F, Deadline>;
  struct Shared {
    detail::Mutex mutex;
    detail::CondVar done;
    std::optional<Answer> answer TENDON_GUARDED_BY(mutex);
  };
  const auto shared = std::make_shared<Shared>();
  auto thread =
      detail::Thread::start({.name = "tendon-call", .where = "python.call", .task = "for the call"},
                            [shared, deadline, call = std::move(call)]() mutable {
                              Answer answer = call(deadline);
                              const detail::Lock lock(shared->mutex);
                              shared->answer.emplace(std::move(answer));
                              shared->done.notify_one();
                            });
  if (!thread) return std::move(thread).error();
  thread->detach();
  while (true) {
    {
      const WithoutGil unlocked;
      const detail::Lock lock(shared->mutex);
      const Deadline end(slice);
      while (!shared->answer.has_value() && shared->done.wait_until(shared->mutex, end)) {
      }
      if (shared->answer.has_value()) return *std::move(shared->answer);
    }
    meanwhile();
  }
}

inline void look_at_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Tells a call to stop when a signal handler raises.
inline void stop_at_signal(std::stop_source& stop) {
  if (PyErr_CheckSignals() == 0) return;
  const nb::python_error raised;
  {
    // Fetches the exception first: a thread that waits for the GIL at the interpreter's end never
    // returns.
    const WithoutGil unlocked;
    stop.request_stop();
  }
  throw raised;
}

/// Runs a call that must not be cut into slices, because each slice would start it anew. After
/// Ctrl-C it continues alone, unless `meanwhile` ends it.
template <class F, class Meanwhile>
auto wait_beside(Deadline deadline, F call, Meanwhile meanwhile)
    -> std::invoke_result_t<F, Deadline> {
  note_running_loop(deadline);
  if (deadline.is_poll() || deadline.remaining() <= kSlice) {
    const WithoutGil unlocked;
    return call(deadline);
  }
  return wait_beside(deadline, std::move(call), kSlice, std::move(meanwhile));
}
template <class F>
auto wait_beside(Deadline deadline, F call) -> std::invoke_result_t<F, Deadline> {
  return wait_beside(deadline, std::move(call), look_at_signals);
}

/// A larger message is sent on another thread at once: its copy may take longer than a slice, and
/// each slice would start it anew.
inline constexpr std::uint64_t kSlicedBytes = std::uint64_t{32} << 20;

/// Sends with `call(Deadline)`. The first slice runs on this thread, as most sends take no time. A
/// longer send moves to another thread: restarted every slice, it would never finish on a slow
/// network.
template <class F>
void send_with(Deadline deadline, std::uint64_t size_bytes, F call) {
  note_running_loop(deadline);
  release_left_over();
  if (size_bytes <= kSlicedBytes) {
    const Deadline slice = deadline.is_poll() ? deadline : earlier(deadline, kSlice);
    std::optional<Result<void>> answer;
    {
      const WithoutGil unlocked;
      answer.emplace(call(slice));
    }
    if (*answer || slice.time_point() == deadline.time_point() || !ran_out(answer->error(), slice))
      return unwrap(*std::move(answer));
    look_at_signals();
  }
  unwrap(wait_beside(deadline, std::move(call)));
}

}  // namespace tendon::python
