// SPDX-License-Identifier: Apache-2.0
#include "log_queue.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>

#include "bindings.hpp"
#include "choices.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

OwnedLogLine owned(const LogLine& line) {
  return {line.time,
          line.pid,
          std::string(line.context),
          line.level,
          std::string(line.where),
          std::string(line.text)};
}

LogLine viewed(const OwnedLogLine& line) {
  return {line.time, line.pid, line.context, line.level, line.where, line.text};
}

OwnedLogLine count_of(std::uint64_t left_out) {
  return {std::chrono::system_clock::now(),
          static_cast<std::uint32_t>(getpid()),
          {},
          LogLevel::warn,
          "observe.log",
          std::to_string(left_out) + " lines were left out: " +
              std::to_string(LogQueue::kMostWaiting) + " waited for the callback"};
}

double seconds_since_1970(const OwnedLogLine& line) {
  return std::chrono::duration<double>(line.time.time_since_epoch()).count();
}

}  // namespace

void LogQueue::push(const LogLine& line) {
  {
    const detail::Lock lock(mutex_);
    if (finished_) return;
    if (lines_.size() >= kMostWaiting) {
      ++left_out_;
      return;
    }
    lines_.push_back({owned(line), std::exchange(left_out_, 0)});
  }
  changed_.notify_one();
}

std::optional<OwnedLogLine> LogQueue::next() {
  const detail::Lock lock(mutex_);
  while (lines_.empty() && left_out_ == 0 && !finished_) changed_.wait(mutex_);
  std::uint64_t& left_out = lines_.empty() ? left_out_ : lines_.front().left_out_before;
  if (left_out != 0) return count_of(std::exchange(left_out, 0));
  if (lines_.empty()) return std::nullopt;
  OwnedLogLine line = std::move(lines_.front().line);
  lines_.pop_front();
  return line;
}

void LogQueue::finish() {
  {
    const detail::Lock lock(mutex_);
    finished_ = true;
  }
  changed_.notify_one();
}

void bind_log(nb::module_& module) {
  nb::class_<OwnedLogLine>(module, "LogLine",
                           "One line of the log, as the callback of set_log_callback() gets it.\n\n"
                           "str(line) is the line as stderr has it by default.")
      .def_prop_ro("time", seconds_since_1970, "Seconds since 1970, as time.time() tells them.")
      .def_ro("pid", &OwnedLogLine::pid)
      .def_ro("context", &OwnedLogLine::context,
              "The Context that it is about: its name and the first digits of its id,\n"
              "'learner/3f2a91c0'; '': none, or several.")
      .def_prop_ro(
          "level", [](const OwnedLogLine& self) { return std::string(to_string(self.level)); },
          "'error', 'warn', 'info' or 'debug'.")
      .def_ro("where", &OwnedLogLine::where, "The stable name of the place, 'listener.accept'.")
      .def_ro("text", &OwnedLogLine::text)
      .def("__str__", [](const OwnedLogLine& self) { return to_string(viewed(self)); })
      .def("__repr__", [](const OwnedLogLine& self) {
        return "tendon.LogLine(" + to_string(viewed(self)) + ")";
      });
  // tendon/_log.py uses this class.
  nb::class_<LogQueue>(module, "_LogQueue")
      .def("__init__",
           [](LogQueue* self, const std::string& level) {
             new (self) LogQueue(word_from<LogLevel>("level", level));
           })
      .def("next", [](LogQueue& self) { return without_gil([&] { return self.next(); }); })
      .def("finish", &LogQueue::finish);
  module.def("_log_to", [](const std::shared_ptr<LogQueue>& queue) {
    set_log_callback(queue->level(), [queue](const LogLine& line) { queue->push(line); });
  });
  // Only the tests use this function.
  module.def(
      "_log",
      [](const std::string& text, const std::string& level) {
        log(word_from<LogLevel>("level", level), "python.test", text);
      },
      nb::arg("text"), nb::arg("level") = "warn");
  module.def("_log_to_stderr", [](const std::string& level) {
    set_log_callback(word_from<LogLevel>("level", level), {});
  });
}

}  // namespace tendon::python
