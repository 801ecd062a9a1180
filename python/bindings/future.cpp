// SPDX-License-Identifier: Apache-2.0
#include "future.hpp"

#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "context.hpp"
#include "errors.hpp"

namespace tendon::python {
namespace {

constexpr const char* kFutureDoc =
    "The outcome of isend, irecv, a collective and their like, now or later.\n\n"
    "The operation goes on by itself and keeps every array it touches. Take the\n"
    "result once, by result() or by `await`. Dropping one: a send goes on, a\n"
    "receive that has no message yet is cancelled, one that has puts it back. A\n"
    "collective goes on; cancel() ends it for all members. A task that is cancelled\n"
    "in an `await` cancels the operation, and a message that has come is the first\n"
    "of its stream again.\n\n"
    "It is a coroutine too: asyncio.create_task(pipe.arecv()), TaskGroup.create_task,\n"
    "gather, wait_for and run_coroutine_threadsafe take it; asyncio.wait takes tasks.";

// A coroutine that waits for a Future refers to it, so the garbage collector must see both.
int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<Future>(self)->driver.ptr());
  return 0;
}

int clear(PyObject* self) noexcept {
  nb::inst_ptr<Future>(self)->driver.reset();
  return 0;
}

PyType_Slot kSlots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {0, nullptr},
};

}  // namespace

void bind_future(nb::module_& module) {
  nb::class_<Future>(
      module, "Future", kFutureDoc, nb::type_slots(kSlots), nb::is_generic(),
      nb::sig("class Future(collections.abc.Coroutine[typing.Any, typing.Any, _T_co])"))
      .def("done", &Future::done, "True when result() will not wait.")
      .def("cancel", &Future::cancel,
           "Best effort: an operation that was stopped raises Cancelled.")
      .def(
          "result",
          [](Future& self, nb::object timeout) {
            const bool given = !timeout.is(nb::ellipsis());
            return self.take(
                deadline_of(given ? timeout : self.timeout(), default_timeout_s(self.context())),
                given ? Then::goes_on : Then::ends);
          },
          nb::arg("timeout").none() = nb::ellipsis(),
          "Waits and takes the result.\n\n"
          "timeout: seconds, None for ever. After its Timeout the operation goes on;\n"
          "wait again. Left out: as long as the call was given, and then the operation\n"
          "ends, as it does with `await`.",
          nb::sig("def result(self, timeout: float | None = ...) -> _T_co"))
      .def(
          "__await__",
          [](nb::object self) { return asyncio_part("wait")(self).attr("__await__")(); },
          nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, _T_co]"))
      .def(
          "send",
          [](nb::object self, nb::object value) { return asyncio_part("send")(self, value); },
          nb::arg("value").none(), "For event loops, which take it for a coroutine.",
          nb::sig("def send(self, value: typing.Any, /) -> typing.Any"))
      .def(
          "throw",
          [](nb::object self, nb::args exception) {
            return asyncio_part("throw")(self, *exception);
          },
          "For event loops, which take it for a coroutine.",
          nb::sig("def throw(self, *exception: typing.Any) -> typing.Any"))
      .def(
          "close", [](nb::object self) { asyncio_part("close")(self); },
          "For event loops: ends it as a task that is cancelled does.")
      .def_prop_rw(
          "_driver",
          [](const Future& self) {
            return self.driver.is_valid() ? self.driver : nb::object(nb::none());
          },
          [](Future& self, nb::object driver) { self.driver = std::move(driver); })
      .def("_late", [](const Future& self) { return exception_object(self.late()); })
      .def("_expire", &Future::expire)
      .def("_give_back", &Future::give_back)
      .def_prop_ro("_watched",
                   [](const Future& self) -> nb::object {
                     return self.watched.is_valid() ? self.watched : self.context();
                   })
      .def_prop_ro(
          "_timeout",
          [](const Future& self) -> nb::object {
            return seconds_left(deadline_of(self.timeout(), default_timeout_s(self.context())));
          })
      .def_ro("_ends_iteration", &Future::ends_iteration);
}

}  // namespace tendon::python
