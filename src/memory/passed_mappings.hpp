// SPDX-License-Identifier: Apache-2.0
// Counts the segments of peers that this process has mapped. A process may have vm.max_map_count
// mappings; if peers have used them up, it fails wherever it needs memory.
#pragma once

#include <cstdint>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail {

/// A quarter of vm.max_map_count, for the segments of all links together.
[[nodiscard]] std::uint64_t most_passed_mappings();
/// Counts one more mapping, until drop_passed_mapping(). Errors: resource_exhausted.
[[nodiscard]] Result<void> add_passed_mapping();
void drop_passed_mapping() noexcept;

}  // namespace tendon::v0::detail
