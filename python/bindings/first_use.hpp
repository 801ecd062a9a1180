// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::python {

/// Does the slow first part of a conversion to tensordict before a caller waits for it: imports the
/// adapter and converts a small TensorDict out and in. Called where an object is opened or waited
/// for. Does nothing if the program has not imported tensordict, or the second time. The call that
/// needs the conversion reports a failure.
void prepare_conversions();

}  // namespace tendon::python
