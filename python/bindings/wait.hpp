// SPDX-License-Identifier: Apache-2.0
// How a call from Python waits: without the GIL, and in slices between which signals are looked at.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <type_traits>
#include <utility>

#include "deferred.hpp"
#include "errors.hpp"
#include "shared.hpp"
#include "without_gil.hpp"

namespace tendon::python {

/// Between two looks at signals. Ctrl-C is answered within twice this.
inline constexpr std::chrono::milliseconds kSlice{50};

/// The deadline that a `timeout=` argument means: seconds, None (never), or ... (the default).
TENDON_BETWEEN_MODULES [[nodiscard]] Deadline deadline_of(nb::handle timeout, double default_s);
/// Seconds as a duration, for options; the error names `what`.
TENDON_BETWEEN_MODULES [[nodiscard]] std::chrono::milliseconds duration_of(double seconds,
                                                                           const char* what);

/// As Python has durations and times.
[[nodiscard]] inline double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

/// True for the error of a call whose deadline passed; it may have waited for slots.
[[nodiscard]] inline bool ran_out(const Error& error, Deadline deadline) {
  return (error.code == ErrorCode::timeout || error.code == ErrorCode::resource_exhausted) &&
         deadline.has_passed();
}

/// Calls `attempt(Deadline)` without the GIL until it answers something else than "not yet" or the
/// deadline passes. An attempt that timed out must have changed nothing.
template <class F>
auto wait_in_slices(Deadline deadline, F attempt) -> std::invoke_result_t<F, Deadline> {
  release_left_over();
  while (true) {
    std::optional<std::invoke_result_t<F, Deadline>> answer;
    const Deadline slice = deadline.is_poll() ? deadline : earlier(deadline, kSlice);
    {
      const WithoutGil unlocked;
      answer.emplace(attempt(slice));
    }
    if (*answer || slice.time_point() == deadline.time_point() || !ran_out(answer->error(), slice))
      return *std::move(answer);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace tendon::python
