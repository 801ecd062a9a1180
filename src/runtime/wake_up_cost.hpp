// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// The cost for a thread of this process to sleep and to be woken: the median delay with which a
/// few short sleeps end, 10 to 60 us.
///
/// It uses a timer, not another thread. Two threads that wake each other often share a CPU, where
/// that costs far less than between processes with a CPU each.
///
/// Owns:    nothing.
/// Threads: thread-safe.
/// Errors:  none; where there is no timer, 40 us.
/// Blocks:  for about 0.8 ms, the first time in a process.
/// Cost:    that of a constant from then on.
[[nodiscard]] std::chrono::microseconds wake_up_cost();

}  // namespace tendon::v0::detail
