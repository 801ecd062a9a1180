// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <tendon/group/rendezvous.hpp>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

class PythonStore;

/// The state of a Python Rendezvous.
struct RendezvousHandle {
  Rendezvous rendezvous;
  std::shared_ptr<PythonStore> store = nullptr;  ///< of through()
};

/// Any object with set and get, asked by the thread that waits in Group.join or rebuild: no thread
/// of the library ever takes the GIL.
[[nodiscard]] std::shared_ptr<PythonStore> make_store(nb::handle store);
/// Before each call that uses it.
void start_serving(PythonStore& store);
/// Answers what is asked of the store now, if it can. Holds the GIL; throws what the store raises.
void serve(PythonStore& store);
/// Nobody serves any more: what is asked from now on is answered `cancelled`.
void stop_serving(PythonStore& store);

/// A number of a member, or of members; TypeError and ValueError call it `name`.
TENDON_BETWEEN_MODULES [[nodiscard]] std::uint32_t rank_from(nb::handle object, const char* name);

/// The place that the arguments of Group.join name; ValueError where they contradict.
[[nodiscard]] RendezvousHandle rendezvous_from(nb::handle rendezvous, nb::handle rank,
                                               nb::handle size, nb::handle address,
                                               nb::handle store);

}  // namespace tendon::python
