// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tendon/control/controller.hpp>
#include <vector>

#include "background.hpp"
#include "choices.hpp"
#include "context.hpp"
#include "control/broadcast_call.hpp"
#include "control/control.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "rendezvous.hpp"
#include "wait.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

constexpr const char* kControllerDoc =
    "One controller gives numbered steps to many workers and collects what they\n"
    "make of them.\n\n"
    "    controller = Controller(tendon.ParallelLayout(tensor=2), '127.0.0.1:7100')\n"
    "    controller.wait_for_workers(timeout=30)\n"
    "    controller.broadcast(1, b'what to do')\n"
    "    [outputs] = controller.collect(1)\n\n"
    "A worker that dies or fails closes the roster: broadcast and collect raise\n"
    "WorkerLost until rebuild() has formed the next one with a replacement. What was\n"
    "in flight is void. Safe from every thread. The GIL is released while it waits.";

struct ControllerHandle {
  std::shared_ptr<Controller> controller;  // null: closed
  nb::object context;
};

Controller& open(const ControllerHandle& self) {
  if (self.controller == nullptr) {
    throw to_exception(
        {ErrorCode::roster_closed, "python.controller", "the controller was closed"});
  }
  return *self.controller;
}

Deadline until(const ControllerHandle& self, nb::handle timeout) {
  return deadline_of(timeout, default_timeout_s(self.context));
}

/// Makes a call in slices.
template <class F>
auto sliced(const ControllerHandle& self, nb::handle timeout, F call) {
  Controller& controller = open(self);
  const auto kept = self.controller;  // another thread may close it meanwhile
  return unwrap(
      wait_in_slices(until(self, timeout), [&](Deadline end) { return call(controller, end); }));
}

ControllerHandle make(const ParallelLayout& layout, const std::string& address,
                      const std::string& profile, std::uint64_t payload_version,
                      double idle_heartbeat, double step_heartbeat, nb::object context) {
  context = context_or_default(std::move(context));
  const auto shared = nb::cast<const ContextHandle&>(context).context;
  ControllerOptions options{.security = {word_from<Profile>("profile", profile)},
                            .payload_version = payload_version,
                            .idle_heartbeat = duration_of(idle_heartbeat, "idle_heartbeat"),
                            .step_heartbeat = duration_of(step_heartbeat, "step_heartbeat")};
  auto made =
      without_gil([&] { return Controller::bind(*shared, layout, address, std::move(options)); });
  return {ends_without_gil(unwrap(std::move(made))), std::move(context)};
}

void broadcast(const ControllerHandle& self, std::uint64_t schedule_id, nb::object payload,
               nb::object tensors, nb::object timeout) {
  StepInputs inputs{.schedule_id = schedule_id, .payload = payload_from(payload)};
  if (!tensors.is_none()) inputs.tensors = dict_from(tensors);
  const std::shared_ptr<Controller> controller = (open(self), self.controller);
  // The call keeps its turn between slices: a later call of another thread follows it.
  detail::BroadcastCall call(*controller, inputs);
  unwrap(wait_in_slices(until(self, timeout), [&](Deadline end) { return call.attempt(end); }));
}

using Class = nb::class_<ControllerHandle>;

void bind_steps(Class& controller) {
  const auto timeout = nb::arg("timeout") = nb::ellipsis();
  controller
      .def("broadcast", broadcast, nb::arg("schedule_id"), nb::arg("payload") = nb::bytes("", 0),
           nb::arg("tensors") = nb::none(), timeout,
           "Gives a step to all workers. schedule_id is above that of all steps before,\n"
           "and of calls of other threads that began before: they take turns.\n"
           "At most pipeline stages + 1 are in flight: beyond that it waits for outputs,\n"
           "which stay for collect().",
           nb::sig("def broadcast(self, schedule_id: int, payload: Buffer = b'', tensors: "
                   "Mapping[str, Any] | None = None, timeout: float | None = ...) -> None"))
      .def(
          "collect",
          [](const ControllerHandle& self, std::uint64_t schedule_id, nb::object timeout) {
            const auto controller = (open(self), self.controller);
            return unwrap(wait_in_slices(
                until(self, timeout),
                [&](Deadline end) { return controller->collect(schedule_id, end); },
                [&](Result<std::vector<StepOutputs>> outputs) {
                  controller->give_back(*std::move(outputs));
                }));
          },
          nb::arg("schedule_id"), timeout,
          "The outputs of a step, by rank: one from each KV-parallel rank of the last stage.",
          nb::sig("def collect(self, schedule_id: int, timeout: float | None = ...) -> "
                  "list[StepOutputs]"))
      .def(
          "wait_for_microbatch",
          [](const ControllerHandle& self, std::uint64_t schedule_id, nb::object timeout) {
            sliced(self, timeout, [&](Controller& controller, Deadline end) {
              return controller.wait_for_microbatch(schedule_id, end);
            });
          },
          nb::arg("schedule_id"), timeout, "Returns when the first stage has passed on its part.",
          nb::sig("def wait_for_microbatch(self, schedule_id: int, timeout: float | None = ...) "
                  "-> None"))
      .def(
          "cancel_step",
          [](const ControllerHandle& self, std::uint64_t schedule_id, nb::object timeout) {
            sliced(self, timeout, [&](Controller& controller, Deadline end) {
              return controller.cancel_step(schedule_id, end);
            });
          },
          nb::arg("schedule_id"), timeout,
          "Tells every worker that this step is no longer wanted, and waits for their word\n"
          "that they heard it. Its outputs still come.",
          nb::sig("def cancel_step(self, schedule_id: int, timeout: float | None = ...) -> None"));
}

void bind_workers(Class& controller) {
  const auto timeout = nb::arg("timeout") = nb::ellipsis();
  controller
      .def(
          "wait_for_workers",
          [](const ControllerHandle& self, nb::object timeout) {
            sliced(self, timeout, [](Controller& controller, Deadline end) {
              return controller.wait_for_workers(end);
            });
          },
          timeout, "Waits until each rank has a worker and a probe came through to all of them.",
          nb::sig("def wait_for_workers(self, timeout: float | None = ...) -> None"))
      .def(
          "rebuild",
          [](const ControllerHandle& self, nb::object timeout) {
            sliced(self, timeout,
                   [](Controller& controller, Deadline end) { return controller.rebuild(end); });
          },
          timeout, "After WorkerLost: forms the next roster, with replacements that have come.",
          nb::sig("def rebuild(self, timeout: float | None = ...) -> None"))
      .def(
          "ask",
          [](const ControllerHandle& self, nb::object rank, nb::object timeout) {
            const GlobalRank asked{rank_from(rank, "rank")};
            const std::shared_ptr<Controller> controller = (open(self), self.controller);
            return unwrap(wait_beside(until(self, timeout), [controller, asked](Deadline end) {
              return controller->ask(asked, end);
            }));
          },
          nb::arg("rank"), timeout,
          "Asks a worker on its pipe, whatever its program does meanwhile.",
          nb::sig("def ask(self, rank: int, timeout: float | None = ...) -> WorkerStatus"))
      .def(
          "drain",
          [](const ControllerHandle& self, nb::object timeout) {
            sliced(self, timeout,
                   [](Controller& controller, Deadline end) { return controller.drain(end); });
          },
          timeout, "Accepts no more steps, and waits until none is in flight.",
          nb::sig("def drain(self, timeout: float | None = ...) -> None"))
      .def(
          "stop",
          [](const ControllerHandle& self, const nb::str& reason, nb::object timeout) {
            sliced(self, timeout, [text = utf8_of(reason)](Controller& controller, Deadline end) {
              return controller.stop(text, end);
            });
          },
          nb::arg("reason") = "the controller's program stopped it", timeout,
          "Tells all workers to end after the steps that they have, and waits for their end.",
          nb::sig("def stop(self, reason: str = ..., timeout: float | None = ...) -> None"));
}

}  // namespace

void bind_controller(nb::module_& module) {
  nb::class_<StepOutputs>(module, "StepOutputs", "What one rank made of a step.")
      .def_ro("schedule_id", &StepOutputs::schedule_id)
      .def_prop_ro("rank", [](const StepOutputs& self) { return self.rank.value; })
      .def_prop_ro(
          "payload",
          [](const StepOutputs& self) {
            return nb::bytes(self.payload.data(), self.payload.size_bytes());
          },
          nb::sig("def payload(self) -> bytes"))
      .def_ro("agreement", &StepOutputs::agreement);
  Class controller(module, "Controller", kControllerDoc);
  controller
      .def(
          "__init__",
          [](ControllerHandle* self, const ParallelLayout& layout, const std::string& address,
             const std::string& profile, std::uint64_t payload_version, double idle_heartbeat,
             double step_heartbeat, nb::object context) {
            new (self) ControllerHandle(make(layout, address, profile, payload_version,
                                             idle_heartbeat, step_heartbeat, std::move(context)));
          },
          nb::arg("layout"), nb::arg("address") = "127.0.0.1:0", nb::kw_only(),
          nb::arg("profile") = "local", nb::arg("payload_version") = 0,
          nb::arg("idle_heartbeat") = 1.0, nb::arg("step_heartbeat") = 0.1,
          nb::arg("context") = nb::none(),
          "Listens for workers. Workers with another layout or payload_version are refused.\n"
          "Heartbeats are in seconds. profile='plaintext' lets in workers of other hosts.",
          nb::sig("def __init__(self, layout: ParallelLayout, address: str = '127.0.0.1:0', *, "
                  "profile: str = 'local', payload_version: int = 0, idle_heartbeat: float = 1.0, "
                  "step_heartbeat: float = 0.1, context: Context | None = None) -> None"))
      .def_prop_ro(
          "address", [](const ControllerHandle& self) { return open(self).address(); },
          "Where workers connect, with the port that was chosen.")
      .def_prop_ro(
          "layout", [](const ControllerHandle& self) { return open(self).layout(); },
          nb::sig("def layout(self) -> ParallelLayout"))
      .def("status", [](const ControllerHandle& self) { return open(self).status(); })
      .def("stats", [](const ControllerHandle& self) { return open(self).stats(); })
      .def(
          "close", [](ControllerHandle& self) { self.controller.reset(); },
          "Tells the workers to end, and does not wait for them.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Controller"))
      .def(
          "__exit__", [](ControllerHandle& self, nb::args) { self.controller.reset(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  bind_steps(controller);
  bind_workers(controller);
}

}  // namespace tendon::python
