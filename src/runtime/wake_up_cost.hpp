// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// What it costs a thread of this process to go to sleep and to be woken: how late a few short
/// sleeps end, their median, 10 to 60 us.
///
/// A timer is asked, not another thread: two threads that wake each other often share a CPU, where
/// that costs far less than it does between processes that have a CPU each.
///
/// Owns:    nothing.
/// Threads: thread-safe.
/// Errors:  none; where there is no timer, 40 us.
/// Blocks:  for about 0.8 ms, the first time in a process.
/// Cost:    as a constant from then on.
[[nodiscard]] std::chrono::microseconds wake_up_cost();

}  // namespace tendon::v0::detail
