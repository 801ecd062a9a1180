// SPDX-License-Identifier: Apache-2.0
// Finds out by trials how this machine makes large copies fastest.
#pragma once

#include <tendon/tensor/value.hpp>

namespace tendon::cli {

/// Returns a row for each range of sizes: `from_bytes`, `way` (null where it could not be tried),
/// and the rates that decided it, `gb_per_s` of each way. Takes some tenths of a second and 64 MiB.
[[nodiscard]] Value::List try_copies();
/// Prints those rows as a table.
void print_copies(const Value::List& rows);

}  // namespace tendon::cli
