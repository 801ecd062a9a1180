// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

/// The number of links allowed when the process may open `descriptors`. A link over sockets has a
/// control lane and `streams` bulk lanes; one of shared memory takes about as many.
[[nodiscard]] constexpr std::size_t links_within(std::uint64_t descriptors, std::uint32_t streams) {
  const std::uint64_t left = descriptors - std::min(descriptors, kDescriptorsBesideLinks);
  const std::uint64_t most = left / (kDescriptorsPerLink + streams);
  return std::clamp<std::uint64_t>(most, 1, kMaxLinksPerContext);
}

/// The same for the current RLIMIT_NOFILE, which a program may change.
[[nodiscard]] inline std::size_t most_links(std::uint32_t streams) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxLinksPerContext;
  return links_within(limit.rlim_cur, streams);
}

}  // namespace tendon::v0::detail
