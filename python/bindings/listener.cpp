// SPDX-License-Identifier: Apache-2.0
#include "listener.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "background.hpp"
#include "bindings.hpp"
#include "choices.hpp"
#include "first_use.hpp"
#include "future.hpp"
#include "pipe.hpp"
#include "security.hpp"

namespace tendon::python {
namespace {

constexpr const char* kListenerDoc =
    "A place where peers connect. Use it in a `with` block, or close() it.\n\n"
    "Up to 64 pipes wait to be accepted; the next peer gets ServerBusy. Safe from\n"
    "every thread.\n\n"
    "timeout, of each call that takes one: seconds; None: for ever, as where it is left out.";

PipeHandle accept(const ListenerHandle& self, nb::object timeout) {
  prepare_conversions();
  const auto listener = self.listener;
  // An idle listener is no error: without a timeout, the wait for a connection never ends.
  const Deadline deadline =
      timeout.ptr() == Py_Ellipsis ? Deadline::never() : deadline_of(timeout, 0);
  return make_pipe(unwrap(wait_in_slices(
                       deadline, [&](Deadline slice) { return listener->accept(slice); },
                       [&](Result<Pipe> pipe) { listener->give_back(*std::move(pipe)); })),
                   self.context);
}

std::unique_ptr<Future> accept_async(const ListenerHandle& self, nb::object timeout) {
  prepare_conversions();
  if (timeout.ptr() == Py_Ellipsis) timeout = nb::none();
  return make_future(
      self.context, timeout, self.listener->accept_async(),
      [context = self.context](Pipe pipe) { return nb::cast(make_pipe(std::move(pipe), context)); },
      "listener.accept",
      [address = self.listener->address()] {
        return "nobody connected to " + address + " before the deadline";
      });
}

}  // namespace

ListenerHandle bind_listener_to(nb::object context, const std::string& address,
                                const std::string& profile, const nb::object& security) {
  const auto shared = nb::cast<const ContextHandle&>(context).context;
  ListenOptions options;
  options.security = security_from(profile, security);
  // It waits only for the look-up of names, so an event loop may call it.
  const auto bind = [shared, address, options](Deadline) {
    return Listener::bind(*shared, address, options);
  };
  auto bound = wait_beside(std::chrono::seconds(6), bind, kSlice, look_at_signals);
  return {std::make_shared<Listener>(unwrap(std::move(bound))), std::move(context)};
}

void bind_listener(nb::module_& module) {
  nb::class_<ListenerHandle>(module, "Listener", kListenerDoc)
      .def("accept", accept, nb::arg("timeout").none() = nb::ellipsis(),
           "The next pipe.\n\ntimeout: seconds; by default it waits for ever.",
           nb::sig("def accept(self, timeout: float | None = ...) -> Pipe"))
      .def("aaccept", accept_async, nb::arg("timeout").none() = nb::ellipsis(),
           "`pipe = await listener.aaccept()`.",
           nb::sig("def aaccept(self, timeout: float | None = ...) -> Future[Pipe]"))
      .def_prop_ro(
          "address", [](const ListenerHandle& self) { return self.listener->address(); },
          "Where it listens, with the port that was chosen.")
      .def(
          "close", [](ListenerHandle& self) { self.listener->close(); },
          "Stops listening; pipes not accepted yet are closed. May be repeated.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Listener"))
      .def(
          "__exit__", [](ListenerHandle& self, nb::args) { self.listener->close(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def(
          "__aenter__", [](nb::object self) { return asyncio_part("enter")(self); },
          nb::sig("def __aenter__(self) -> collections.abc.Coroutine[typing.Any, typing.Any, "
                  "Listener]"))
      .def(
          "__aexit__",
          [](nb::object self, nb::args) { return asyncio_part("leave_at_once")(self); },
          nb::sig("def __aexit__(self, *exception: object) -> "
                  "collections.abc.Coroutine[typing.Any, typing.Any, None]"))
      .def("__repr__", [](const ListenerHandle& self) {
        return "tendon.Listener('" + self.listener->address() + "')";
      });
}

}  // namespace tendon::python
