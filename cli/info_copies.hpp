// SPDX-License-Identifier: Apache-2.0
// Which way large copies go on this machine, found by making some.
#pragma once

#include <tendon/tensor/value.hpp>

namespace tendon::cli {

/// A row for each range of sizes: `from_bytes`, `way` (null: could not be tried), and what it was
/// chosen by, `gb_per_s` of each way. Takes some tenths of a second and 64 MiB.
[[nodiscard]] Value::List try_copies();
/// Those rows as a table.
void print_copies(const Value::List& rows);

}  // namespace tendon::cli
