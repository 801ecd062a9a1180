// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "tendon/v1/control.pb.h"

namespace tendon::v0::detail {

/// A word of a worker pipe. Its size is compared with what a word of its kind may have before
/// anything of it is made. Errors: protocol_violation.
[[nodiscard]] Result<v1::Word> read_word(Bytes bytes);

}  // namespace tendon::v0::detail
