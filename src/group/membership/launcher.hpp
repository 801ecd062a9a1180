// SPDX-License-Identifier: Apache-2.0
// The variables that the launcher of this process left in its environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tendon::v0::detail {

/// A variable by its name. An empty one counts as unset.
using Variables = std::function<std::optional<std::string>(const char*)>;

/// The variable of this process's environment.
[[nodiscard]] std::optional<std::string> variable(const char* name);

/// The variables by which the launcher that set the rank says that all `size` ranks are on this
/// host: "LOCAL_WORLD_SIZE = WORLD_SIZE = 4". Nothing if it does not say so, and for a group of
/// another size than the job, whose other members it may not know.
[[nodiscard]] std::optional<std::string> all_on_this_host(const Variables& environment,
                                                          std::uint32_t size);

}  // namespace tendon::v0::detail
