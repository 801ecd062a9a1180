// SPDX-License-Identifier: Apache-2.0
#include <tendon/core/context_id.hpp>

#include "core/text.hpp"

namespace tendon::v0 {

std::string ContextId::to_string() const { return detail::to_hex(bytes); }

}  // namespace tendon::v0
