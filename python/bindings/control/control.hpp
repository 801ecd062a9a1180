// SPDX-License-Identifier: Apache-2.0
// The extension module tendon._control: Controller and Worker. It is separate because it needs
// ZeroMQ and Protobuf; it imports the shared parts from `_tendon`.
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/memory/storage.hpp>

namespace tendon::python {

namespace nb = nanobind;

void bind_worker_status(nb::module_& module);
void bind_controller(nb::module_& module);
void bind_worker(nb::module_& module);

/// The payload of a step or of its outputs; a TypeError names the legal types.
[[nodiscard]] Storage payload_from(nb::handle payload);

}  // namespace tendon::python
