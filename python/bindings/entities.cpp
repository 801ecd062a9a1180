// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <tendon/fabric/node.hpp>

#include "bindings.hpp"

namespace tendon::python {

void bind_entities(nb::module_& module) {
  nb::class_<EntityInfo>(module, "EntityInfo",
                         "A publisher, a subscriber or a responder, as its node has announced it.")
      .def_ro("key", &EntityInfo::key, "Of a subscriber: its set of keys.")
      .def_ro("node", &EntityInfo::node, "Its node's name; '' while that is not known.")
      .def_prop_ro(
          "schema",
          [](const EntityInfo& self) -> std::optional<std::string> {
            if (!self.schema) return std::nullopt;
            return to_string(*self.schema);
          },
          "The hash of its schema, as `tendon topic info` prints it. None: any schema.")
      .def_prop_ro(
          "history", [](const EntityInfo& self) { return self.qos.history.samples; },
          "Of a publisher: how many samples it keeps.")
      .def_prop_ro(
          "overflow",
          [](const EntityInfo& self) { return std::string(to_string(self.qos.overflow)); },
          "Of a publisher: 'drop_oldest' or 'block'.")
      .def_prop_ro(
          "priority",
          [](const EntityInfo& self) { return std::string(to_string(self.qos.priority)); },
          "Of a publisher: 'normal' or 'control'.")
      .def(
          "__eq__", [](const EntityInfo& self, const EntityInfo& other) { return self == other; },
          nb::is_operator())
      .def("__repr__", [](const EntityInfo& self) {
        return "tendon.EntityInfo('" + self.key + "' of '" + self.node + "')";
      });
}

}  // namespace tendon::python
