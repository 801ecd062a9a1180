// SPDX-License-Identifier: Apache-2.0
// The benchmarks of waiting (detect, deadline, group-detect) have one table and one kind of row.
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
  std::string what{};                    ///< was waited for, in the table
  std::string mode{};                    ///< the same in JSON
  std::vector<double> latencies_us{};    ///< one a round, in any order
  std::optional<std::uint64_t> named{};  ///< errors that name the victim, where there is one
  Value::Map more{};                     ///< behind the others in JSON
};

/// Measures on shm and on tcp, or on the one that was asked for, and prints the rows. Returns the
/// exit code: that of `internal` if an error did not name its victim.
[[nodiscard]] int run_waiting(
    std::string_view benchmark, const std::string& heading, std::optional<Transport> asked,
    Format format, const std::function<Result<std::vector<WaitingRow>>(Transport)>& measure);

}  // namespace tendon::cli
