// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/observe/log.hpp>

namespace tendon::v0::detail {

/// log() for a line about one Context, under the name that LogLine::context describes.
TENDON_API void log_of(std::string_view context, LogLevel level, std::string_view where,
                       std::string_view text) noexcept;

}  // namespace tendon::v0::detail
