// SPDX-License-Identifier: Apache-2.0
#include "sample.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <sstream>
#include <string>
#include <utility>

#include "arrays_out.hpp"
#include "bindings.hpp"
#include "conversion.hpp"
#include "dicts.hpp"
#include "read_only_memory.hpp"
#include "wait.hpp"

namespace tendon::python {
namespace {

constexpr const char* kSampleDoc =
    "A sample as a subscriber receives it: tensors or bytes, and their origin.\n\n"
    "Its arrays are read-only where the publisher is on this host, because other\n"
    "subscribers read the same memory, and keep that memory alive. Nothing is\n"
    "copied while fewer than max_held samples of a publisher are kept. Those of\n"
    "recv(mode='copy') may be written.";

template <class T>
std::string text_of(const T& printed) {
  std::ostringstream text;
  text << printed;
  return text.str();
}

void bind_gap(nb::module_& module) {
  nb::class_<Gap>(module, "Gap", "Samples of one publisher that do not come: exactly these.")
      .def_ro("publisher", &Gap::publisher, "The node's name.")
      .def_ro("entity", &Gap::entity, "Which publisher of the node, as Sample.entity.")
      .def_ro("incarnation", &Gap::incarnation,
              "When the node's Context was made [ns of wall clock].")
      .def_ro("first", &Gap::first, "The sequence of the first one.")
      .def_ro("last", &Gap::last, "The sequence of the last one.")
      .def_prop_ro("count", &Gap::count, "How many they are.")
      .def_prop_ro(
          "reason", [](const Gap& self) { return std::string(to_string(self.reason)); },
          "'overflow': the subscriber was behind by more than the publisher's history;\n"
          "'history': the history was given up early, because publish_bytes was short;\n"
          "'reconnect': they left the history while there was no link;\n"
          "'expired': they came, older than the subscriber's max_age;\n"
          "'schema': they came, and do not fit the subscriber's schema;\n"
          "'undecodable': they came, and could not be read;\n"
          "'died': the publisher died, was lost or refused this subscriber before they left.")
      .def("__str__", text_of<Gap>)
      .def("__repr__", [](const Gap& self) { return "tendon.Gap(" + text_of(self) + ")"; });
}

void bind_ended(nb::module_& module) {
  nb::class_<Ended>(module, "Ended", "The end of one publisher's samples at one subscriber.")
      .def_ro("publisher", &Ended::publisher, "The node's name.")
      .def_ro("entity", &Ended::entity, "Which publisher of the node, as Sample.entity.")
      .def_ro("key", &Ended::key, "On which it published.")
      .def_ro("incarnation", &Ended::incarnation,
              "When the node's Context was made [ns of wall clock].")
      .def_ro("last_seen", &Ended::last_seen,
              "The last sample that arrived here, also if it is not taken yet; 0: none did.")
      .def_ro("last_published", &Ended::last_published,
              "The last sample that was published; where it is not exact, at least so many were.")
      .def_ro("exact", &Ended::exact, "Is last_published exact?")
      .def_prop_ro(
          "reason", [](const Ended& self) { return std::string(to_string(self.reason)); },
          "'closed': it closed its topic in order;\n"
          "'died': the kernel says that its process is gone;\n"
          "'lost': its link has been gone for a lease, and no new one was made;\n"
          "'refused': its link lives, but the channel ended with an error.\n"
          "After 'lost' and 'refused' it may return: the event 'came' says so.")
      .def("__str__", text_of<Ended>)
      .def("__repr__", [](const Ended& self) { return "tendon.Ended(" + text_of(self) + ")"; });
}

std::string representation_of(const Sample& sample) {
  if (sample.ended) return "tendon.Sample(" + text_of(*sample.ended) + ")";
  return "tendon.Sample(" +
         (sample.plain ? std::string("of a plain Zenoh peer")
                       : std::to_string(sample.sequence) + " of " + sample.publisher) +
         " on " + nb::cast<std::string>(nb::repr(nb::cast(sample.key))) + ")";
}

}  // namespace

SampleHandle make_sample(Sample sample, nb::handle as) {
  if (sample.tensors) note_read_only(*sample.tensors, sample.key);
  note_read_only(sample.bytes, sample.key);
  nb::object tensors =
      sample.tensors ? converted(*std::move(sample.tensors), as) : nb::object(nb::none());
  sample.tensors.reset();
  return {std::move(sample), std::move(tensors)};
}

void bind_sample(nb::module_& module) {
  bind_gap(module);
  bind_ended(module);
  nb::class_<SampleHandle>(module, "Sample", kSampleDoc)
      .def_prop_ro(
          "key", [](const SampleHandle& self) { return self.sample.key; },
          "On which it was published.")
      .def_prop_ro(
          "publisher", [](const SampleHandle& self) { return self.sample.publisher; },
          "The name of the node that published it; '' for a plain Zenoh peer.")
      .def_prop_ro(
          "incarnation", [](const SampleHandle& self) { return self.sample.incarnation; },
          "When that node's Context was made [ns of wall clock].")
      .def_prop_ro(
          "sequence", [](const SampleHandle& self) { return self.sample.sequence; },
          "Its number among those of this publisher: 1, 2, 3, ...; 0 of an end.")
      .def_prop_ro(
          "entity", [](const SampleHandle& self) { return self.sample.entity; },
          "Which publisher of the node: never used again in its Context. 0 for a plain Zenoh\n"
          "peer.")
      .def_prop_ro(
          "ended", [](const SampleHandle& self) { return self.sample.ended; },
          "With ends=True: the samples of this publisher end here, and gaps has what is\n"
          "missing behind the last one. None: it is a sample.",
          nb::sig("def ended(self) -> Ended | None"))
      .def_prop_ro(
          "stamp", [](const SampleHandle& self) { return self.sample.stamp; },
          "When it was published [ns of CLOCK_BOOTTIME there].")
      .def_prop_ro(
          "age",
          [](const SampleHandle& self) {
            return self.sample.age ? nb::object(nb::float_(seconds_of(*self.sample.age)))
                                   : nb::object(nb::none());
          },
          "How old it was when it was taken [s], at the most; None without max_age.",
          nb::sig("def age(self) -> float | None"))
      .def_prop_ro(
          "gaps", [](const SampleHandle& self) { return self.sample.gaps; },
          "The samples missing between it and the last one of this publisher, in order.",
          nb::sig("def gaps(self) -> list[Gap]"))
      .def_prop_ro(
          "plain", [](const SampleHandle& self) { return self.sample.plain; },
          "A plain Zenoh peer put it: it has no sequence, and stamp is its arrival here.")
      .def_prop_ro(
          "encoding", [](const SampleHandle& self) { return self.sample.encoding; },
          "The encoding that a plain Zenoh peer named: 'application/json'; '' for samples\n"
          "of Tendon.")
      .def_ro("tensors", &SampleHandle::tensors,
              "A TensorDict, or what as_= named; None for raw bytes.",
              nb::sig("def tensors(self) -> typing.Any"))
      .def_prop_ro(
          "bytes", [](const SampleHandle& self) { return to_memoryview(self.sample.bytes); },
          "Raw bytes where they lie, without a copy; empty for tensors.",
          nb::sig("def bytes(self) -> memoryview"))
      .def("__repr__", [](const SampleHandle& self) { return representation_of(self.sample); });
}

}  // namespace tendon::python
