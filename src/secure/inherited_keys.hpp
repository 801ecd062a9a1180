// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/shared_key.hpp"

namespace tendon::v0::detail {

/// Reads the keys that this process's parent has passed by `descriptor`, a pipe or a file, to its
/// end, and closes it. The text is that of a file of keys; its mode is not checked, since the
/// parent could read it. Errors: invalid_argument for a descriptor that was not inherited; timeout
/// where its other end is not closed by the deadline; those of parse_keys(), system.
[[nodiscard]] Result<std::vector<SharedKey>> read_inherited_keys(int descriptor, Deadline deadline);

}  // namespace tendon::v0::detail
