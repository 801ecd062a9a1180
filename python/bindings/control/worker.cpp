// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <string>
#include <tendon/control/worker.hpp>

#include "background.hpp"
#include "choices.hpp"
#include "context.hpp"
#include "control/control.hpp"
#include "errors.hpp"
#include "group.hpp"
#include "rendezvous.hpp"
#include "wait.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

constexpr const char* kWorkerDoc =
    "One of the processes that a Controller gives steps to.\n\n"
    "    with Worker('127.0.0.1:7100', layout, rank) as worker:\n"
    "        while True:\n"
    "            try:\n"
    "                step = worker.next_step()\n"
    "                worker.send_outputs(step.schedule_id, compute(step, worker.tensor_group))\n"
    "            except tendon.EndOfStream:  # the controller stopped\n"
    "                break\n"
    "            except tendon.Error as error:  # the roster is over, or a collective failed\n"
    "                free_all_sequences()\n"
    "                worker.rebuild(error, timeout=60)\n\n"
    "The controller's questions are answered whatever the program does, also while it\n"
    "holds the GIL. Steps are moved by one thread at a time.";

struct WorkerHandle {
  std::shared_ptr<Worker> worker;  // null: closed
  nb::object context;
};

const std::shared_ptr<Worker>& open(const WorkerHandle& self) {
  if (self.worker == nullptr) {
    throw to_exception({ErrorCode::roster_closed, "python.worker", "the worker was closed"});
  }
  return self.worker;
}

Deadline until(const WorkerHandle& self, nb::handle timeout) {
  return deadline_of(timeout, default_timeout_s(self.context));
}

WorkerHandle connect(const std::string& address, const ParallelLayout& layout, nb::handle rank,
                     const std::string& profile, std::uint64_t payload_version,
                     std::uint64_t free_blocks, const std::string& listen, nb::object context,
                     nb::handle timeout) {
  context = context_or_default(std::move(context));
  const auto& handle = nb::cast<const ContextHandle&>(context);
  const Deadline deadline = deadline_of(timeout, handle.timeout_s);
  const WorkerOptions options{.payload_version = payload_version,
                              .security = {word_from<Profile>("profile", profile)},
                              .listen = listen,
                              .free_blocks = free_blocks};
  auto made =
      wait_beside(deadline, [shared = handle.context, address, layout,
                             place = GlobalRank{rank_from(rank, "rank")}, options](Deadline end) {
        return Worker::connect(*shared, address, layout, place, end, options);
      });
  return {ends_without_gil(unwrap(std::move(made))), std::move(context)};
}

nb::object group_of(const WorkerHandle& self, std::shared_ptr<Group> WorkerGroups::*which) {
  std::shared_ptr<Group> group = open(self)->groups().*which;
  if (group == nullptr) {
    throw to_exception({ErrorCode::roster_closed, "python.worker",
                        "this worker is in no roster, and has no groups: call rebuild()"});
  }
  // Like every Group, it ends without the GIL.
  const auto kept = ends_without_gil(std::move(group));
  return nb::cast(GroupHandle{std::shared_ptr<Group>(kept, kept->get()), self.context});
}

Step next_step(const WorkerHandle& self, nb::handle timeout) {
  const std::shared_ptr<Worker> worker = open(self);
  return unwrap(wait_in_slices(
      deadline_of(timeout, 0), [&](Deadline end) { return worker->next_step(end); },
      [&](Result<Step> step) { worker->give_back(*std::move(step)); }));
}

void send_outputs(const WorkerHandle& self, std::uint64_t schedule_id, nb::object payload,
                  std::uint64_t agreement, nb::object timeout) {
  const std::shared_ptr<Worker> worker = open(self);
  const StepOutputs outputs{.schedule_id = schedule_id,
                            .rank = {},
                            .payload = payload_from(payload),
                            .agreement = agreement};
  unwrap(wait_in_slices(until(self, timeout),
                        [&](Deadline end) { return worker->send_outputs(outputs, end); }));
}

/// Converts the program's description of the failure: one of our exceptions, another one, or a
/// text.
Error cause_from(nb::handle cause) {
  if (auto error = try_error_from(cause)) return *std::move(error);
  if (PyUnicode_Check(cause.ptr())) {
    return {ErrorCode::internal, "python.worker", utf8_of(cause)};
  }
  return {ErrorCode::internal, "python.worker", exception_text(cause.type(), cause)};
}

void rebuild(const WorkerHandle& self, nb::object cause, nb::object timeout) {
  unwrap(wait_beside(until(self, timeout),
                     [worker = open(self), why = cause_from(cause)](Deadline end) {
                       return worker->rebuild(why, end);
                     }));
}

using Class = nb::class_<WorkerHandle>;

void bind_place(Class& worker) {
  worker.def_prop_ro("rank", [](const WorkerHandle& self) { return open(self)->rank().value; })
      .def_prop_ro("roster", [](const WorkerHandle& self) { return open(self)->roster(); })
      .def_prop_ro(
          "sends_outputs", [](const WorkerHandle& self) { return open(self)->sends_outputs(); },
          "Whether the controller waits for this rank's outputs.")
      .def_prop_ro(
          "signals_microbatches",
          [](const WorkerHandle& self) { return open(self)->signals_microbatches(); },
          "Whether the controller listens to this rank's microbatch signals.")
      .def_prop_ro(
          "world", [](const WorkerHandle& self) { return group_of(self, &WorkerGroups::world); },
          "The group of all workers, in this roster.", nb::sig("def world(self) -> Group"))
      .def_prop_ro(
          "tensor_group",
          [](const WorkerHandle& self) { return group_of(self, &WorkerGroups::tensor); },
          nb::sig("def tensor_group(self) -> Group"))
      .def_prop_ro(
          "kv_group", [](const WorkerHandle& self) { return group_of(self, &WorkerGroups::kv); },
          nb::sig("def kv_group(self) -> Group"))
      .def_prop_ro(
          "pipeline_group",
          [](const WorkerHandle& self) { return group_of(self, &WorkerGroups::pipeline); },
          "This worker's rank in it is its stage.", nb::sig("def pipeline_group(self) -> Group"))
      .def(
          "set_load", [](const WorkerHandle& self, double load) { open(self)->set_load(load); },
          nb::arg("load"), "In WorkerStatus.load from now on.")
      .def("stats", [](const WorkerHandle& self) { return open(self)->stats(); });
}

void bind_steps(Class& worker) {
  const auto timeout = nb::arg("timeout") = nb::ellipsis();
  worker
      .def("next_step", next_step, nb::arg("timeout") = nb::none(),
           "The next step, in the controller's order, each once. EndOfStream when the\n"
           "controller stopped, RosterClosed when the roster is over. Waits for ever by default.",
           nb::sig("def next_step(self, timeout: float | None = None) -> Step"))
      .def("send_outputs", send_outputs, nb::arg("schedule_id"),
           nb::arg("payload") = nb::bytes("", 0), nb::kw_only(), nb::arg("agreement") = 0, timeout,
           "The end of a step. On a rank that sends no outputs it says only that it is over.\n"
           "agreement: any number that must be the same on all ranks that send outputs.",
           nb::sig("def send_outputs(self, schedule_id: int, payload: Buffer = b'', *, agreement: "
                   "int = 0, timeout: float | None = ...) -> None"))
      .def(
          "signal_microbatch",
          [](const WorkerHandle& self, std::uint64_t schedule_id, nb::object timeout) {
            const std::shared_ptr<Worker> worker = open(self);
            unwrap(wait_in_slices(until(self, timeout), [&](Deadline end) {
              return worker->signal_microbatch(schedule_id, end);
            }));
          },
          nb::arg("schedule_id"), timeout, "This rank's part of the first stage is over.",
          nb::sig("def signal_microbatch(self, schedule_id: int, timeout: float | None = ...) -> "
                  "None"))
      .def("rebuild", rebuild, nb::arg("cause"), timeout,
           "After RosterClosed, or after a collective that failed: says why, waits for the\n"
           "controller to have a full roster again, and enters it. cause: an exception or a text.",
           nb::sig("def rebuild(self, cause: BaseException | str, timeout: float | None = ...) -> "
                   "None"));
}

}  // namespace

void bind_worker(nb::module_& module) {
  nb::class_<Step>(module, "Step", "A step as a worker gets it.")
      .def_prop_ro("schedule_id", [](const Step& self) { return self.inputs.schedule_id; })
      .def_prop_ro(
          "payload",
          [](const Step& self) {
            return nb::bytes(self.inputs.payload.data(), self.inputs.payload.size_bytes());
          },
          nb::sig("def payload(self) -> bytes"))
      .def_prop_ro(
          "tensors", [](const Step& self) { return nb::cast(self.inputs.tensors); },
          "Read-only: the workers of the controller's host read the same memory.",
          nb::sig("def tensors(self) -> TensorDict"))
      .def_prop_ro(
          "cancelled", [](const Step& self) { return self.cancelled(); },
          "Set by Controller.cancel_step() while the step is at work.");
  Class worker(module, "Worker", kWorkerDoc);
  worker
      .def(
          "__init__",
          [](WorkerHandle* self, const std::string& address, const ParallelLayout& layout,
             nb::object rank, const std::string& profile, std::uint64_t payload_version,
             std::uint64_t free_blocks, const std::string& listen, nb::object context,
             nb::object timeout) {
            new (self) WorkerHandle(connect(address, layout, rank, profile, payload_version,
                                            free_blocks, listen, std::move(context), timeout));
          },
          nb::arg("address"), nb::arg("layout"), nb::arg("rank"), nb::kw_only(),
          nb::arg("profile") = "local", nb::arg("payload_version") = 0, nb::arg("free_blocks") = 0,
          nb::arg("listen") = "", nb::arg("context") = nb::none(),
          nb::arg("timeout") = nb::ellipsis(),
          "Joins the controller, then makes the groups and flows of the first roster with the\n"
          "others: returns when all of them are there.",
          nb::sig(
              "def __init__(self, address: str, layout: ParallelLayout, rank: int, *, "
              "profile: str = 'local', payload_version: int = 0, free_blocks: int = 0, listen: str "
              "= '', context: Context | None = None, timeout: float | None = ...) -> None"))
      .def(
          "leave",
          [](const WorkerHandle& self, const nb::str& reason) {
            const std::shared_ptr<Worker> worker = open(self);
            const std::string text = utf8_of(reason);
            const WithoutGil unlocked;
            worker->leave(text);
          },
          nb::arg("reason") = "its program left",
          "Leaves in order: the controller closes the roster.")
      .def(
          "close", [](WorkerHandle& self) { self.worker.reset(); }, "The same, for good.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Worker"))
      .def(
          "__exit__", [](WorkerHandle& self, nb::args) { self.worker.reset(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  bind_place(worker);
  bind_steps(worker);
}

}  // namespace tendon::python
