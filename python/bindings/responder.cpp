// SPDX-License-Identifier: Apache-2.0
#include "responder.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "background.hpp"
#include "bindings.hpp"
#include "conversion.hpp"
#include "dicts.hpp"
#include "node.hpp"
#include "read_only_memory.hpp"

namespace tendon::python {
namespace {

constexpr const char* kClassDoc =
    "Answers calls on one key; made by Node.responder().\n\n"
    "A `with` block closes it, or leaves at once when an exception leaves the block.\n\n"
    "timeout, of close(): seconds; None: for ever; left out: as its Context says.";

/// The state of a Python Request.
struct RequestHandle {
  Request request;
  std::shared_ptr<Tasks> tasks;
  nb::object tensors;
};

/// A task and the place for its answer.
struct TaskHandle {
  std::shared_ptr<Tasks> tasks;
  std::shared_ptr<Task> task;
};

/// None once the tasks are closed; the thread then ends.
nb::object next(const std::shared_ptr<Tasks>& self) {
  auto task = without_gil([&] { return self->next(); });
  release_left_over();
  if (task == nullptr) return nb::none();
  return nb::cast(TaskHandle{self, std::move(task)});
}

RequestHandle request_of(const TaskHandle& self) {
  const Request& request = self.task->request;
  note_read_only(request.tensors(), self.tasks->key());
  return {request, self.tasks, converted(request.tensors(), nb::none())};
}

void answer(const TaskHandle& self, nb::object data) {
  self.tasks->answer(*self.task, data.is_none() ? TensorDict() : dict_from(data));
}

void fail(const TaskHandle& self, nb::handle failure) {
  auto error = try_error_from(failure);
  if (!error) {
    error = Error{ErrorCode::handler_failed, "responder.handler",
                  exception_text(failure.type(), failure)};
  }
  self.tasks->answer(*self.task, *std::move(error));
}

nb::object remaining(const RequestHandle& self) {
  const Deadline deadline = self.request.deadline();
  if (deadline.is_never()) return nb::none();
  return nb::float_(std::chrono::duration<double>(deadline.remaining()).count());
}

/// Not in slices: the first expired slice would cancel running handlers.
Result<void> close_until(const ResponderHandle& self, Deadline deadline) {
  release_left_over();
  Result<void> in_handler;
  const std::function<void()> close = [&] { in_handler = self.responder->close(deadline); };
  // In a handler, its threads keep working until the responder is dropped.
  if (without_gil([&] { return self.tasks->call_in_handler(close); })) return in_handler;
  auto closed = wait_beside(
      deadline, [responder = self.responder](Deadline end) { return responder->close(end); });
  self.tasks->close();
  return closed;
}

void leave(const ResponderHandle& self, nb::object type, nb::object /*value*/,
           nb::object /*traceback*/) {
  if (!type.is_none()) {
    (void)close_until(self, Deadline::now());
    return;
  }
  unwrap(close_until(self, until(self.node, nb::ellipsis())));
}

/// The destructor ends like a Responder's, even in one of its handlers, which run on threads of
/// Python.
std::shared_ptr<Responder> ends_in_handlers(Responder made, const std::shared_ptr<Tasks>& tasks) {
  return {new Responder(std::move(made)), [tasks](Responder* last) {
            const std::function<void()> end = [last] { delete last; };
            if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return end();
            const WithoutGil unlocked;
            if (!tasks->call_in_handler(end)) end();
          }};
}

// tendon/_responder.py uses these classes.
void bind_tasks(nb::module_& module) {
  nb::class_<TaskHandle>(module, "_Task")
      .def("__enter__",
           [](nb::object self) {
             Tasks::run_on_this_thread(nb::cast<const TaskHandle&>(self).task.get());
             return self;
           })
      .def("__exit__", [](const TaskHandle&, nb::args) { Tasks::run_on_this_thread(nullptr); })
      .def_prop_ro("request", request_of)
      .def("answer", answer, nb::arg("data").none())
      .def("fail", fail);
  nb::class_<Tasks>(module, "_Tasks")
      .def("next", next)
      .def_prop_ro("idle_count", &Tasks::idle_count)
      .def("close", &Tasks::close);
}

void bind_request(nb::module_& module) {
  nb::class_<RequestHandle>(module, "Request",
                            "A request to a handler. Its arrays are read-only where the caller\n"
                            "is on this host.")
      .def_ro("tensors", &RequestHandle::tensors, "A TensorDict.",
              nb::sig("def tensors(self) -> TensorDict"))
      .def_prop_ro(
          "caller", [](const RequestHandle& self) { return self.request.caller(); },
          "'motor (host b, pid 4711)'.")
      .def("remaining", remaining, "Seconds until the caller gives up; None: it never does.",
           nb::sig("def remaining(self) -> float | None"))
      .def(
          "cancelled",
          [](const RequestHandle& self) {
            return self.request.cancelled() || self.tasks->is_closed();
          },
          "Nobody waits for the answer: the caller gave up, was answered by another\n"
          "responder, or is lost; or the interpreter ends. What takes long looks now and\n"
          "then.")
      .def("__repr__", [](const RequestHandle& self) {
        return "tendon.Request(of " + self.request.caller() + ")";
      });
}

void bind_stats(nb::module_& module) {
  nb::class_<ResponderStats>(module, "ResponderStats", "What became of requests.")
      .def_ro("answered", &ResponderStats::answered, "With tensors.")
      .def_ro("failed", &ResponderStats::failed,
              "The handler raised, or its answer could not be sent.")
      .def_ro("refused", &ResponderStats::refused, "As ServerBusy.")
      .def_ro("cancelled", &ResponderStats::cancelled,
              "Given up by their callers before there was an answer.")
      .def_ro("waiting", &ResponderStats::waiting, "Now.")
      .def_ro("running", &ResponderStats::running, "Now.");
}

}  // namespace

ResponderHandle declare_responder(nb::object node, const std::string& key, nb::object handler,
                                  std::uint32_t handlers, std::uint32_t waiting) {
  const auto threads = nb::module_::import_("tendon._responder");
  threads.attr("check")(handler);
  const auto shared = nb::cast<const NodeHandle&>(node).node;
  const auto tasks = std::make_shared<Tasks>(key);
  auto responder = ends_in_handlers(
      unwrap(without_gil([&] {
        return Responder::declare(*shared, key,
                                  [tasks](const Request& request) { return tasks->ask(request); },
                                  {.handlers = handlers, .waiting = waiting});
      })),
      tasks);
  threads.attr("start")(tasks, handler, key, handlers);
  const std::shared_ptr<Tasks> closing(tasks.get(), [tasks](Tasks* open) { open->finish(); });
  return {std::move(node), closing, std::move(responder)};
}

void bind_responder(nb::module_& module) {
  bind_tasks(module);
  bind_request(module);
  bind_stats(module);
  nb::class_<ResponderHandle>(module, "Responder", kClassDoc)
      .def(
          "close",
          [](const ResponderHandle& self, nb::object timeout) {
            unwrap(close_until(self, until(self.node, timeout)));
          },
          nb::arg("timeout").none() = nb::ellipsis(),
          "Refuses further requests, and waits for those that it has. Timeout says how\n"
          "many are left: these are cancelled. In a handler it waits for none. May be\n"
          "repeated.",
          nb::sig("def close(self, timeout: float | None = ...) -> None"))
      .def(
          "stats", [](const ResponderHandle& self) { return self.responder->stats(); },
          "Counts of requests.")
      .def_prop_ro(
          "key", [](const ResponderHandle& self) { return self.responder->key(); },
          "On which it answers.")
      .def_ro("node", &ResponderHandle::node, "The Node it was made from.",
              nb::sig("def node(self) -> Node"))
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Responder"))
      .def("__exit__", leave, nb::arg("type").none(), nb::arg("value").none(),
           nb::arg("traceback").none(),
           nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"))
      .def("__repr__", [](const ResponderHandle& self) {
        return "tendon.Responder('" + self.responder->key() + "')";
      });
}

}  // namespace tendon::python
