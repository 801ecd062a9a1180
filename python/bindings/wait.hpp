// SPDX-License-Identifier: Apache-2.0
// How a call from Python waits: without the GIL, and in slices; it looks at signals between them.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/observe/log.hpp>
#include <type_traits>
#include <utility>

#include "deferred.hpp"
#include "errors.hpp"
#include "shared.hpp"
#include "without_gil.hpp"

namespace tendon::python {

/// The time between two looks at signals. Ctrl-C is answered within twice this.
inline constexpr std::chrono::milliseconds kSlice{50};

/// The deadline for a `timeout=` argument: seconds, None (never), or ... (the default).
TENDON_BETWEEN_MODULES [[nodiscard]] Deadline deadline_of(nb::handle timeout, double default_s);
/// Seconds as a duration, for options; the error names `what`.
TENDON_BETWEEN_MODULES [[nodiscard]] std::chrono::milliseconds duration_of(double seconds,
                                                                           const char* what);

/// Ends receives of closed event loops, which would take messages that this thread waits for.
TENDON_BETWEEN_MODULES void drop_closed_loops();

/// The inverse of deadline_of: None, or the remaining seconds.
[[nodiscard]] nb::object seconds_left(Deadline deadline);

/// Warns, once per process, of a call that may wait in a thread whose event loop runs: the loop
/// cannot run meanwhile.
TENDON_BETWEEN_MODULES void note_running_loop(Deadline deadline);

/// Converts a duration to the seconds that Python uses.
[[nodiscard]] inline double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

/// True for the error of a call whose deadline passed, even if it waited for slots.
[[nodiscard]] inline bool ran_out(const Error& error, Deadline deadline) {
  return (error.code == ErrorCode::timeout || error.code == ErrorCode::resource_exhausted) &&
         deadline.has_passed();
}

/// Calls `attempt(Deadline)` without the GIL until its answer is final or the deadline passes. A
/// timed-out attempt must have changed nothing. Looks at signals before a taken result is returned:
/// if a handler raises, as for Ctrl-C, `give_back(result)` undoes a success. Without `give_back`
/// nothing needs to be undone.
template <class F, class GiveBack = std::nullptr_t>
auto wait_in_slices(Deadline deadline, F attempt, GiveBack give_back = nullptr)
    -> std::invoke_result_t<F, Deadline> {
  constexpr bool kTakes = !std::is_null_pointer_v<GiveBack>;
  note_running_loop(deadline);
  release_left_over();
  while (true) {
    std::optional<std::invoke_result_t<F, Deadline>> answer;
    const Deadline slice = deadline.is_poll() ? deadline : earlier(deadline, kSlice);
    {
      const WithoutGil unlocked;
      answer.emplace(attempt(slice));
    }
    const bool over = !*answer && (slice.time_point() == deadline.time_point() ||
                                   !ran_out(answer->error(), slice));
    if (over || (*answer && !kTakes)) return *std::move(answer);
    if (PyErr_CheckSignals() != 0) {
      const nb::python_error raised;
      if constexpr (kTakes) {
        const WithoutGil unlocked;
        if (*answer) give_back(*std::move(answer));
      }
      throw raised;
    }
    if (*answer) return *std::move(answer);
    drop_closed_loops();
  }
}

/// Returns `convert(taken)`. If a message cannot become a Python object, `give_back(taken)` returns
/// it to its stream. A message with corrupt_data is dropped, because it would be the next message
/// for ever.
template <class T, class Convert, class GiveBack>
auto convert_or_give_back(const T& taken, Convert convert, GiveBack give_back) {
  std::exception_ptr failed;
  try {
    return convert(taken);
  } catch (const nb::python_error& raised) {
    const auto error = try_error_from(raised.value());
    if (error && error->code == ErrorCode::corrupt_data) throw;
    failed = std::current_exception();
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  {
    const WithoutGil unlocked;
    give_back(taken);
  }
  std::rethrow_exception(failed);
}

/// Logs a message that could not return to its stream; another exception is already active.
inline void note_lost(const Result<void>& given_back) {
  if (given_back) return;
  const Error& why = given_back.error();
  log(LogLevel::error, why.where, "a message that was taken is lost: " + why.detail);
}

}  // namespace tendon::python
