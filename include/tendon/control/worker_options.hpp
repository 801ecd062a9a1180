// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

/// Every member has a default; name the ones you set.
struct WorkerOptions {
  /// As ControllerOptions::schema_hash.
  std::uint64_t schema_hash = 0;
  /// As ControllerOptions::profile, for the worker pipe and the groups.
  Profile profile = Profile::local;
  /// As GroupOptions::listen, for the groups. Empty: TENDON_LISTEN, else a free port of the
  /// interface that reaches the controller.
  std::string listen = {};
  /// In WorkerStatus: KV blocks that this worker has room for, or what else the controller counts.
  std::uint64_t free_blocks = 0;
};

}  // namespace v0
}  // namespace tendon
