// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

/// How many links may have descriptors, of `descriptors` that the process may open: a link over
/// sockets has a control lane and `streams` bulk lanes, one of shared memory about as many.
[[nodiscard]] constexpr std::size_t links_within(std::uint64_t descriptors, std::uint32_t streams) {
  const std::uint64_t left = descriptors - std::min(descriptors, kDescriptorsBesideLinks);
  const std::uint64_t most = left / (kDescriptorsPerLink + streams);
  return std::clamp<std::uint64_t>(most, 1, kMaxLinksPerContext);
}

/// The same by RLIMIT_NOFILE as it is now: a program may change it.
[[nodiscard]] inline std::size_t most_links(std::uint32_t streams) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxLinksPerContext;
  return links_within(limit.rlim_cur, streams);
}

}  // namespace tendon::v0::detail
