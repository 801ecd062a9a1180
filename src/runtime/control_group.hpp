// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/version.hpp>
#include <vector>

namespace tendon::v0::detail {

/// Where the kernel shows control groups.
struct ControlGroupPaths {
  std::string membership = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

/// A limit: its name in cgroup v2, and in v1 with its controller there.
struct ControlGroupLimit {
  std::string_view unified;          ///< "memory.max"
  std::string_view controller = {};  ///< "memory"; empty: none in v1
  std::string_view legacy = {};      ///< "memory.limit_in_bytes"
};

/// The files of that limit, for the control group of this process and all groups above it, since
/// each of them binds. Some may not exist.
[[nodiscard]] std::vector<std::string> control_group_files(const ControlGroupLimit& limit,
                                                           const ControlGroupPaths& paths = {});

}  // namespace tendon::v0::detail
