// SPDX-License-Identifier: Apache-2.0
#include "control/control.hpp"

namespace tendon::python {

NB_MODULE(_control, module) {
  module.doc() = "The native half of tendon.control; use that one.";
  // The classes that this one's stand on.
  nb::module_::import_("tendon._tendon");
  bind_worker_status(module);
  bind_controller(module);
  bind_worker(module);
  nb::set_leak_warnings(false);
}

}  // namespace tendon::python
