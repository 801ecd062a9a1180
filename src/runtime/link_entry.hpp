// SPDX-License-Identifier: Apache-2.0
// What an engine keeps beside each link.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <tendon/session/profile.hpp>

#include "runtime/engine_roles.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// Which side of a link this Context is. Only a connector opens pipes.
enum class LinkRole : std::uint8_t { connector, acceptor };

struct LinkEntry {
  std::shared_ptr<Link> link;
  LinkRole role;
  /// `local` if the peer proved to be this user on this host, whichever listener let it in.
  Profile profile;
  /// The end of its handshake, or its last lane.
  std::chrono::steady_clock::time_point since;
  bool started = false;
  bool opened = false;  // a pipe, once
  bool was_suspect = false;
};

}  // namespace tendon::v0::detail
