// SPDX-License-Identifier: Apache-2.0
#include <tendon/core/version.hpp>

#include "arguments.hpp"
#include "bindings.hpp"

namespace tendon::python {

NB_MODULE(_tendon, module) {
  module.doc() = "The native half of the package tendon; use that one.";
  module.attr("__version__") = nb::str(kVersion.data(), kVersion.size());
  bind_errors(module);
  bind_tensor(module);
  bind_tensor_dict(module);
  bind_batch_level(module);
  bind_schema(module);
  bind_future(module);
  bind_pool(module);
  bind_loan(module);
  bind_security(module);
  bind_peer(module);
  bind_pipe(module);
  bind_listener(module);
  bind_context(module);
  bind_sample(module);
  bind_publisher(module);
  bind_subscriber(module);
  bind_call(module);
  bind_responder(module);
  bind_events(module);
  bind_peer_stats(module);
  bind_entities(module);
  bind_node(module);
  bind_reduce_op(module);
  bind_rendezvous(module);
  bind_group(module);
  bind_group_stage(module);
  bind_parallel_layout(module);
  bind_torch_table(module);
  bind_safetensors(module);
  bind_shared_files(module);
  bind_memory_faults(module);
  bind_log(module);
  // Disables the report of leaks: a daemon thread that the interpreter's end stops in a wait keeps
  // its objects, and a user can do nothing about that. The tests enable it.
  nb::set_leak_warnings(false);
  // The package calls it after the stubs are made from the bindings above.
  module.def("_set_signature", set_signature);
  module.def("_explain_arguments", explain_arguments);
  module.def("_report_leaks", [] { nb::set_leak_warnings(true); });
}

}  // namespace tendon::python
