// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <tendon/fabric/peer_stats.hpp>

#include "bindings.hpp"
#include "wait.hpp"

namespace tendon::python {

void bind_peer_stats(nb::module_& module) {
  nb::class_<PeerStats>(module, "PeerStats",
                        "Counters of the live links to a node. Counts are of all that both\n"
                        "Contexts have said to each other since the links were made: the\n"
                        "difference of two looks is a rate.")
      .def_ro("node", &PeerStats::node, "Its name.")
      .def_prop_ro(
          "context", [](const PeerStats& self) { return self.context.to_string(); },
          "The id of its Context.")
      .def_ro("incarnation", &PeerStats::incarnation,
              "When its Context was made [ns of wall clock].")
      .def_prop_ro(
          "path", [](const PeerStats& self) { return self.path.to_string(); },
          "How bytes reach it, and why so: 'shm: same host, ...'.")
      .def_ro("messages_sent", &PeerStats::messages_sent)
      .def_ro("messages_received", &PeerStats::messages_received)
      .def_ro("bytes_sent", &PeerStats::bytes_sent)
      .def_ro("bytes_received", &PeerStats::bytes_received)
      .def_ro("dropped_messages", &PeerStats::dropped_messages,
              "Received for channels that were gone.")
      .def_ro("stray_frames", &PeerStats::stray_frames,
              "Frames that came to this Context through routers and were no part of a link:\n"
              "strangers put them, or somebody put them again.")
      .def_ro("refused_questions", &PeerStats::refused_questions,
              "Questions for links that came to this Context through routers and were dropped or\n"
              "refused: larger, or more, than one may ask.")
      .def_prop_ro(
          "round_trip",
          [](const PeerStats& self) -> std::optional<double> {
            if (!self.round_trip) return std::nullopt;
            return seconds_of(*self.round_trip);
          },
          "There and back for the shortest of messages [s], the least of the last ones.\n"
          "None until the peer has replied: the first look asks it.")
      .def_prop_ro(
          "silence", [](const PeerStats& self) { return seconds_of(self.silence); },
          "Since its last sign of life [s], as seen a few times a second.")
      .def("__repr__", [](const PeerStats& self) {
        return "tendon.PeerStats(" + self.node + ", " + self.path.to_string() + ")";
      });
}

}  // namespace tendon::python
