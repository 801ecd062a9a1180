// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "tendon/v1/control.pb.h"

namespace tendon::v0::detail {

/// Reads a word of a worker pipe. Its size is compared with the limit of its kind before anything
/// of it is parsed. Errors: protocol_violation.
[[nodiscard]] Result<v1::Word> read_word(Bytes bytes);

}  // namespace tendon::v0::detail
