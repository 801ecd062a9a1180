// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

namespace tendon::v0::detail {

/// "2026-11-30T09:29:15Z".
[[nodiscard]] std::string utc_text(std::chrono::sys_seconds time);
[[nodiscard]] inline std::chrono::sys_seconds utc_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

}  // namespace tendon::v0::detail
