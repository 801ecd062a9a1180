// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/formerly.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

/// The options of Worker::connect(). Every member has a default; name the ones you set.
struct WorkerOptions {
  /// As ControllerOptions::payload_version.
  std::uint64_t payload_version = 0;
  /// Deprecated: payload_version.
  Formerly<std::uint64_t> schema_hash = {};
  /// As ControllerOptions::security, for the worker pipe and the groups.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  /// As GroupOptions::listen, for the groups. Empty: TENDON_LISTEN, else a free port of the
  /// interface that reaches the controller.
  std::string listen = {};
  /// The number of free KV blocks, or another unit that the controller counts. WorkerStatus shows
  /// it.
  std::uint64_t free_blocks = 0;
};

}  // namespace v0
}  // namespace tendon
