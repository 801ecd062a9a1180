// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <functional>
#include <string>
#include <tendon/session/identity.hpp>

#include "bindings.hpp"

namespace tendon::python {

void bind_peer(nb::module_& module) {
  nb::class_<PeerIdentity>(module, "Peer",
                           "The peer at the other end. str() of it is text for people:\n"
                           "'learner (key:fleet, host a, pid 4711)'.\n\n"
                           "Decide by identity alone: name, host, pid and uid are what the peer\n"
                           "says of itself.")
      .def_ro("identity", &PeerIdentity::identity,
              "Who it has proved to be: 'key:LABEL', and all who have that key are one; by a\n"
              "certificate its first URI, 'tendon:NAME', or else DNS name, 'dns:NAME'.\n"
              "Else empty.")
      .def_prop_ro(
          "proof", [](const PeerIdentity& self) { return std::string(to_string(self.proof)); },
          "'key' or 'certificate'; 'local': a process of this user on this host, by the\n"
          "kernel; 'none': plaintext over a network.",
          nb::sig("def proof(self) -> str"))
      .def_ro("name", &PeerIdentity::name, "A claim: the name of its Context; may be empty.")
      .def_ro("host", &PeerIdentity::host, "A claim.")
      .def_ro("pid", &PeerIdentity::pid, "A claim: in its own pid namespace.")
      .def_ro("uid", &PeerIdentity::uid, "A claim, unless proof is 'local'.")
      .def("__str__", &PeerIdentity::to_string)
      .def("__repr__",
           [](const PeerIdentity& self) { return "tendon.Peer(" + self.to_string() + ")"; })
      .def(
          "__eq__",
          [](const PeerIdentity& self, nb::handle other) {
            return nb::isinstance<PeerIdentity>(other) && self == nb::cast<PeerIdentity>(other);
          },
          nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__",
           [](const PeerIdentity& self) { return std::hash<ContextId>()(self.context); });
}

}  // namespace tendon::python
