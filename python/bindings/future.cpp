// SPDX-License-Identifier: Apache-2.0
#include "future.hpp"

#include "bindings.hpp"
#include "context.hpp"

namespace tendon::python {
namespace {

constexpr const char* kFutureDoc =
    "The outcome of isend, irecv, a collective and their like, now or later.\n\n"
    "The operation goes on by itself and keeps every array it touches. Take the\n"
    "result once, by result() or by `await`. Dropping one: a send goes on, a\n"
    "receive that has no message yet is cancelled, one that has puts it back. A\n"
    "collective goes on; cancel() ends it for all members. A task that is cancelled\n"
    "in an `await` cancels the operation, and a message that has come is the first\n"
    "of its stream again.";

}  // namespace

void bind_future(nb::module_& module) {
  nb::class_<Future>(module, "Future", kFutureDoc)
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
          nb::sig("def result(self, timeout: float | None = ...) -> typing.Any"))
      .def(
          "__await__",
          [](nb::object self) { return asyncio_part("wait")(self).attr("__await__")(); },
          nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, typing.Any]"))
      .def("_expire", &Future::expire)
      .def("_give_back", &Future::give_back)
      .def_prop_ro("_watched",
                   [](const Future& self) -> nb::object {
                     return self.watched.is_valid() ? self.watched : self.context();
                   })
      .def_prop_ro("_timeout",
                   [](const Future& self) -> nb::object {
                     const Deadline deadline =
                         deadline_of(self.timeout(), default_timeout_s(self.context()));
                     if (deadline.is_never()) return nb::none();
                     return nb::float_(std::chrono::duration<double>(deadline.remaining()).count());
                   })
      .def_ro("_ends_iteration", &Future::ends_iteration);
}

}  // namespace tendon::python
