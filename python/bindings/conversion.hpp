// SPDX-License-Identifier: Apache-2.0
// The form in which a receive returns a batch: `as_=` and `device=`.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <tendon/memory/device.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Returns the conversion that `as_` and `device` name, for converted(). A receive calls this
/// before it waits, so that a mistake is reported without a message. TypeError, and
/// UnsupportedDevice for every device except the CPU.
[[nodiscard]] nb::object conversion_from(nb::handle as, nb::handle device);
/// The same for a receive that may deliver to GPUs.
[[nodiscard]] nb::object gpu_conversion_from(nb::handle as, nb::handle device);
/// The argument `device`: None, 'cpu', 'cuda', 'cuda:1', or a torch.device. TypeError, and
/// UnsupportedDevice for other kinds of device.
[[nodiscard]] std::optional<Device> device_from(nb::handle device);

/// A batch in the form of that conversion; None: the batch itself.
[[nodiscard]] nb::object converted(TensorDict batch, nb::handle conversion);

/// A tendon._each.Each: an iterator over the batches that `source`.recv() and arecv() return.
[[nodiscard]] nb::object each_of(nb::object source, nb::object timeout, nb::dict arguments);

}  // namespace tendon::python
