// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/result.hpp>
#include <tendon/runtime/context.hpp>

namespace tendon::v0::detail {

/// The CPUs that this process may use at once: affinity and cgroup quota, at least 1. Spinning on
/// fewer than two would keep the peer from running.
[[nodiscard]] unsigned effective_cpu_count();
/// The same without affinity: a process pinned to one core may still spin when its peer has
/// another.
[[nodiscard]] unsigned quota_cpu_count();
/// The memory that this process may use: physical memory or the cgroup's limit [bytes].
[[nodiscard]] std::uint64_t memory_limit_bytes();
/// min(1 GiB, a quarter of the memory limit).
[[nodiscard]] std::uint64_t default_cap_bytes();

/// The options with every default resolved and every range checked. Reads the environment
/// variables.
[[nodiscard]] Result<ContextOptions> resolve_options(ContextOptions options);

}  // namespace tendon::v0::detail
