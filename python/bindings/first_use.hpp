// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::python {

/// Does what the first TensorDict of tensordict would pay for, before anybody waits for it: imports
/// the adapter and converts a small one, out and in. Called where a thing is opened or waited for.
/// Nothing where the program has not imported tensordict, and nothing the second time. A failure is
/// left to the call that needs the conversion, which has the words for it.
void prepare_conversions();

}  // namespace tendon::python
