// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tendon/control/worker_status.hpp>

#include "control/control.hpp"
#include "wait.hpp"

namespace tendon::python {
void bind_worker_status(nb::module_& module) {
  nb::class_<WorkerStatus>(module, "WorkerStatus", "What a controller knows of one rank.")
      .def_prop_ro("rank", [](const WorkerStatus& self) { return self.rank.value; })
      .def_prop_ro(
          "state", [](const WorkerStatus& self) { return std::string(to_string(self.state)); },
          "running; owes (took a step and has not given its outputs, or has not taken one that\n"
          "was sent); failing (has not said that it is done with the roster that is over);\n"
          "rebuilding; gone (no worker).")
      .def_prop_ro(
          "identity", [](const WorkerStatus& self) { return self.identity.to_string(); },
          "Such as 'worker 2 (host a, pid 4711)'.")
      .def_ro("schedule_id", &WorkerStatus::schedule_id, "The step at work, 0 when there is none.")
      .def_ro(
          "waiting", &WorkerStatus::waiting,
          "Such as 'in all_reduce #7, waiting for rank 2 (1.2 s)'; '' when no collective waits.")
      .def_prop_ro(
          "waiting_for",
          [](const WorkerStatus& self) {
            std::vector<std::uint32_t> ranks;
            ranks.reserve(self.waiting_for.size());
            for (const GlobalRank rank : self.waiting_for) ranks.push_back(rank.value);
            return ranks;
          },
          "The ranks of the layout that it waits for, where they are known.")
      .def_ro("load", &WorkerStatus::load, "What the worker set last.")
      .def_ro("free_blocks", &WorkerStatus::free_blocks, "What the worker said when it joined.")
      .def_ro("applied_inputs", &WorkerStatus::applied_inputs,
              "Steps of this roster that it has taken.")
      .def_prop_ro(
          "stalled", [](const WorkerStatus& self) { return seconds_of(self.stalled); },
          "How long it has held up steps: since it last took or gave one, ended a collective or\n"
          "waited for others [s]. 0 for one that owes nothing, and for one that waits for others.")
      .def_prop_ro(
          "age", [](const WorkerStatus& self) { return seconds_of(self.age); },
          "Since its last heartbeat [s].")
      .def("__repr__", [](const WorkerStatus& self) {
        return "tendon.control.WorkerStatus(rank " + std::to_string(self.rank.value) + ", " +
               std::string(to_string(self.state)) + ", " + self.identity.to_string() + ")";
      });
  nb::class_<ControllerStatus>(module, "ControllerStatus", "What a controller does at one moment.")
      .def_prop_ro(
          "state", [](const ControllerStatus& self) { return std::string(to_string(self.state)); },
          "gathering, forming, running, draining, closed, failed or stopped.")
      .def_ro("roster", &ControllerStatus::roster, "0 before the first.")
      .def_ro("reason", &ControllerStatus::reason, "Why the roster was closed.")
      .def_ro("steps_in_flight", &ControllerStatus::steps_in_flight)
      .def_ro("workers", &ControllerStatus::workers, "One for each rank, by rank.");
  nb::class_<FlowStats>(module, "FlowStats", "What the step flows carried, and what was mended.")
      .def_ro("sent", &FlowStats::sent)
      .def_ro("received", &FlowStats::received)
      .def_ro("doubled", &FlowStats::doubled, "Came twice, dropped the second time.")
      .def_ro("parked", &FlowStats::parked, "Came before an earlier one did.")
      .def_ro("resent", &FlowStats::resent, "Sent again on a worker pipe.")
      .def_ro("refused", &FlowStats::refused, "Not of this run, roster or sender, or malformed.")
      .def_ro("void_outputs", &FlowStats::void_outputs,
              "Outputs of steps that a closed roster left unfinished.");
}

}  // namespace tendon::python
