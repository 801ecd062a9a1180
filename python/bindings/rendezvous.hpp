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
  std::shared_ptr<PythonStore> store = nullptr;  ///< that of through()
};

/// Wraps any object with set and get. The thread that waits in Group.join or rebuild calls it, as
/// no thread of the library takes the GIL.
[[nodiscard]] std::shared_ptr<PythonStore> make_store(nb::handle store);
/// Call before each call that uses the store.
void start_serving(PythonStore& store);
/// Answers the pending question to the store, if it can. Holds the GIL; throws exceptions of the
/// store.
void serve(PythonStore& store);
/// Ends the service: later questions are answered `cancelled`.
void stop_serving(PythonStore& store);

/// Reads a rank or a number of members; TypeError and ValueError call it `name`.
TENDON_BETWEEN_MODULES [[nodiscard]] std::uint32_t rank_from(nb::handle object, const char* name);

/// The rendezvous that the arguments of Group.join name; ValueError if they contradict.
[[nodiscard]] RendezvousHandle rendezvous_from(nb::handle rendezvous, nb::handle rank,
                                               nb::handle size, nb::handle address,
                                               nb::handle store);

}  // namespace tendon::python
