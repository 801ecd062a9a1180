// SPDX-License-Identifier: Apache-2.0
#include <tendon/core/version.hpp>

#include "bindings.hpp"

namespace tendon::python {

NB_MODULE(_tendon, module) {
  module.doc() = "The native half of the package tendon; use that one.";
  module.attr("__version__") = nb::str(kVersion.data(), kVersion.size());
  bind_errors(module);
  bind_tensor(module);
  bind_tensor_dict(module);
  bind_schema(module);
  bind_future(module);
  bind_pool(module);
  bind_loan(module);
  bind_pipe(module);
  bind_listener(module);
  bind_context(module);
  bind_safetensors(module);
}

}  // namespace tendon::python
