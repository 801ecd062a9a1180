// SPDX-License-Identifier: Apache-2.0
#include "arrays_in.hpp"
#include "control/control.hpp"
#include "errors.hpp"

namespace tendon::python {

Storage payload_from(nb::handle payload) {
  if (auto bytes = bytes_from(payload)) return *std::move(bytes);
  raise_type_error("payload is a " + quoted_type(payload) +
                   "; legal are bytes and what has a buffer of bytes");
}

NB_MODULE(_control, module) {
  module.doc() = "The native half of tendon.control; use that one.";
  // `_tendon` has the base classes of this module's classes.
  nb::module_::import_("tendon._tendon");
  bind_worker_status(module);
  bind_controller(module);
  bind_worker(module);
  nb::set_leak_warnings(false);
}

}  // namespace tendon::python
