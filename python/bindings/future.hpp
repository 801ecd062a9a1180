// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <utility>

#include "wait.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Waits for a Completion and takes its result. Looks at signals first: if a handler raises, the
/// result stays in place. A `timeout` error of the operation itself is its result.
template <class T>
Result<T> wait_for(Completion<T>& completion, Deadline deadline) {
  if (!completion.done()) note_running_loop(deadline);
  release_left_over();
  while (true) {
    const Deadline slice = deadline.is_poll() ? deadline : earlier(deadline, kSlice);
    bool done = false;
    {
      const WithoutGil unlocked;
      done = completion.done_by(slice);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (done || slice.time_point() == deadline.time_point()) {
      const WithoutGil unlocked;
      return completion.wait(Deadline::now());
    }
  }
}

/// The Timeout error of an operation that was withdrawn.
[[nodiscard]] inline Error late_error(std::string_view where) {
  return {ErrorCode::timeout, where, "not done before the timeout of the call, and taken back"};
}

/// wait_for() for a caller that stops at the deadline: a pending operation then ends, and its error
/// names the members that it waited for. `late` is the error of a withdrawn operation.
template <class T>
Result<T> settle(Completion<T>& completion, Deadline deadline, const std::function<Error()>& late) {
  auto answer = wait_for(completion, deadline);
  if (answer || !is_pending(answer.error())) return answer;
  {
    const WithoutGil unlocked;
    completion.expire();
    // The caller owns its arrays again when it gets the exception.
    answer = completion.wait(std::chrono::seconds(1));
  }
  if (!answer && answer.error().where == "completion.cancel") answer = late();
  return answer;
}

/// The fate of an operation after the time to wait for it.
enum class Then : std::uint8_t { goes_on, ends };

/// A Completion of any type behind one Python class.
class Future {
 public:
  /// `context` is the Python Context whose descriptor reports completion and whose timeout is the
  /// default. `timeout` is that of the call, the longest wait of `await` and result().
  Future(nb::object context, nb::object timeout)
      : context_(std::move(context)), timeout_(std::move(timeout)) {}
  Future(const Future&) = delete;
  Future& operator=(const Future&) = delete;
  virtual ~Future() = default;

  [[nodiscard]] virtual bool done() const = 0;
  virtual void cancel() = 0;
  /// Ends it because its time is over.
  virtual void expire() = 0;
  /// Withdraws it as if it had never started: a received message returns to its stream.
  virtual void give_back() = 0;
  /// Waits and converts the result; already_taken the second time.
  [[nodiscard]] virtual nb::object take(Deadline deadline, Then then) = 0;

  [[nodiscard]] const nb::object& context() const { return context_; }
  [[nodiscard]] const nb::object& timeout() const { return timeout_; }
  /// The future of an iteration raises StopAsyncIteration at the end of the stream.
  bool ends_iteration = false;
  /// The Timeout error of an operation withdrawn at its timeout, worded for the waiting call.
  std::function<Error()> late = [] { return late_error("completion.wait"); };
  /// The coroutine that waits for it in an event loop, once one started.
  nb::object driver;
  /// The Python object whose descriptor reports completion, if that is not the Context.
  nb::object watched;

 private:
  nb::object context_;
  nb::object timeout_;
};

/// `convert(T&&)` makes the Python object of a result; for void it has no argument.
template <class T, class F>
class FutureOf final : public Future {
 public:
  FutureOf(nb::object context, nb::object timeout, Completion<T> completion, F convert)
      : Future(std::move(context), std::move(timeout)),
        completion_(std::move(completion)),
        convert_(std::move(convert)) {}

  [[nodiscard]] bool done() const override { return !completion_ || completion_->done(); }
  void cancel() override {
    const WithoutGil unlocked;
    if (completion_) completion_->cancel();
  }
  void expire() override {
    const WithoutGil unlocked;
    if (completion_) completion_->expire();
  }
  void give_back() override {
    const WithoutGil unlocked;
    if (auto completion = std::exchange(completion_, std::nullopt))
      std::move(*completion).give_back();
  }
  [[nodiscard]] nb::object take(Deadline deadline, Then then) override {
    if (!completion_) {
      throw to_exception(
          Error{ErrorCode::cancelled, "completion.wait",
                "its await was cancelled; a message that had come is in its stream again"});
    }
    auto result = then == Then::ends ? settle(*completion_, deadline, late)
                                     : wait_for(*completion_, deadline);
    if constexpr (std::is_void_v<T>) {
      unwrap(std::move(result));
      return convert_();
    } else {
      return convert_(unwrap(std::move(result)));
    }
  }

 private:
  std::optional<Completion<T>> completion_;  // until it was returned
  F convert_;
};

template <class T, class F>
std::unique_ptr<Future> make_future(nb::object context, nb::object timeout,
                                    Completion<T> completion, F convert) {
  return std::make_unique<FutureOf<T, F>>(std::move(context), std::move(timeout),
                                          std::move(completion), std::move(convert));
}

/// make_future() for an operation whose Timeout error has the text `late()` and the place `where`.
template <class T, class F, class Late>
std::unique_ptr<Future> make_future(nb::object context, nb::object timeout,
                                    Completion<T> completion, F convert, std::string_view where,
                                    Late late) {
  auto future = make_future(std::move(context), std::move(timeout), std::move(completion),
                            std::move(convert));
  future->late = [where, late = std::move(late)] {
    return Error{ErrorCode::timeout, where, late()};
  };
  return future;
}

/// The attribute of tendon._asyncio with this name, a part written in Python.
[[nodiscard]] inline nb::object asyncio_part(const char* name) {
  return nb::module_::import_("tendon._asyncio").attr(name);
}

}  // namespace tendon::python
