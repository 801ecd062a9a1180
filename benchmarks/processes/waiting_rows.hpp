// SPDX-License-Identifier: Apache-2.0
// The shared table and rows of the benchmarks of waiting (detect, deadline, group-detect).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/output.hpp"

namespace tendon::cli {

struct WaitingRow {
  std::string path{};
  std::string what{};                    ///< the awaited event, in the table
  std::string mode{};                    ///< the same, in JSON
  std::vector<double> latencies_us{};    ///< one per round, unsorted
  std::optional<std::uint64_t> named{};  ///< errors that name the victim, if there is one
  Value::Map more{};                     ///< follows the others in JSON
};

/// Measures on shm and on tcp, or on the requested one, and prints the rows. Returns the exit code:
/// that of `internal` if an error did not name its victim.
[[nodiscard]] int run_waiting(
    std::string_view benchmark, const std::string& heading, std::optional<Transport> asked,
    Format format, const std::function<Result<std::vector<WaitingRow>>(Transport)>& measure);

}  // namespace tendon::cli
