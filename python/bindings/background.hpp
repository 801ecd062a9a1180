// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "wait.hpp"

namespace tendon::python {

/// For a call that may not be cut into slices, because each would start it anew: it runs on a
/// thread of its own with its whole deadline, while this one looks at signals. After Ctrl-C the
/// call goes on alone until its deadline, and nobody takes its result. `call` holds by value
/// whatever it needs.
template <class F>
auto wait_beside(Deadline deadline, F call) -> std::invoke_result_t<F, Deadline> {
  using Answer = std::invoke_result_t<F, Deadline>;
  struct Shared {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Answer> answer;
  };
  if (deadline.is_poll() || deadline.remaining() <= kSlice) {
    const WithoutGil unlocked;
    return call(deadline);
  }
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, deadline, call = std::move(call)]() mutable {
    Answer answer = call(deadline);
    const std::lock_guard lock(shared->mutex);
    shared->answer.emplace(std::move(answer));
    shared->done.notify_one();
  }).detach();
  while (true) {
    {
      const WithoutGil unlocked;
      std::unique_lock lock(shared->mutex);
      if (shared->done.wait_for(lock, kSlice, [&] { return shared->answer.has_value(); }))
        return *std::move(shared->answer);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace tendon::python
