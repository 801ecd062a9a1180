// SPDX-License-Identifier: Apache-2.0
// The extension module tendon._tendon: conversion, the GIL and docstrings, without logic of its
// own.
#pragma once

#include <nanobind/nanobind.h>

namespace tendon::python {

namespace nb = nanobind;

// Each function adds one concept to the module; module.cpp calls them in this order.
void bind_errors(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_tensor_dict(nb::module_& module);
void bind_batch_level(nb::module_& module);
void bind_schema(nb::module_& module);
void bind_future(nb::module_& module);
void bind_pool(nb::module_& module);
void bind_memory_faults(nb::module_& module);
void bind_log(nb::module_& module);
void bind_loan(nb::module_& module);
void bind_peer(nb::module_& module);
void bind_pipe(nb::module_& module);
void bind_listener(nb::module_& module);
void bind_security(nb::module_& module);
void bind_context(nb::module_& module);
void bind_sample(nb::module_& module);
void bind_publisher(nb::module_& module);
void bind_subscriber(nb::module_& module);
void bind_call(nb::module_& module);
void bind_responder(nb::module_& module);
void bind_events(nb::module_& module);
void bind_peer_stats(nb::module_& module);
void bind_entities(nb::module_& module);
void bind_node(nb::module_& module);
void bind_reduce_op(nb::module_& module);
void bind_rendezvous(nb::module_& module);
void bind_group(nb::module_& module);
void bind_group_stage(nb::module_& module);
void bind_parallel_layout(nb::module_& module);
void bind_torch_table(nb::module_& module);
void bind_safetensors(nb::module_& module);
void bind_shared_files(nb::module_& module);

}  // namespace tendon::python
