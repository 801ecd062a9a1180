// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <tendon/core/formerly.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

/// The options of Controller::bind(). Every member has a default; name the ones you set.
struct ControllerOptions {
  /// `local`: workers of this user on this host, whose flows are sockets of the runtime directory.
  /// `plaintext`, by name: workers of other hosts too. Their worker pipes are unprotected; their
  /// flows use tcp with CURVE, whose keys travel on those pipes. That keeps out accidents and other
  /// users, not an attacker on the path.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  /// The version of the messages in the payloads: a worker with another one is refused.
  std::uint64_t payload_version = 0;
  /// Deprecated: payload_version.
  Formerly<std::uint64_t> schema_hash = {};
  /// The time between heartbeats to each worker and back, without and with a step in flight.
  std::chrono::milliseconds idle_heartbeat{1000};
  std::chrono::milliseconds step_heartbeat{100};
  /// Starts a process that connects as this rank. wait_for_workers() and rebuild() call it for each
  /// empty place, and again when a worker that arrived has ended. An earlier process of this rank
  /// may be there still, stopped or hung: kill it first. Without this function they wait for a
  /// worker that connects by itself.
  std::function<Result<void>(GlobalRank)> start_worker = {};
  /// With start_worker: a worker that holds up rebuild() for so long after the roster closed loses
  /// its place, and another one is started. Such a worker has not said that it is done with the
  /// roster, does not reply, or does not enter the next one. The log names it.
  std::chrono::milliseconds hang_timeout{30'000};
};

}  // namespace v0
}  // namespace tendon
