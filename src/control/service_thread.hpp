// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/runtime/context.hpp>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// invalid_argument under Progress::manual: worker pipes are served whatever the program does.
[[nodiscard]] inline Result<void> require_service_thread(const Context& context,
                                                         std::string_view where) {
  if (ContextCore::of(context)->options().progress == Progress::service) return {};
  return Error{ErrorCode::invalid_argument, where,
               "the Context has Progress::manual; a controller or worker needs Progress::service"};
}

}  // namespace tendon::v0::detail
