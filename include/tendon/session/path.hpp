// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// How bytes reach a peer.
enum class PathKind : std::uint8_t {
  none = 0,  ///< not decided yet
  shm = 1,   ///< memory that both processes map
  tcp = 2,   ///< sockets: TCP, or a unix socket that runs the same code
  /// Through routers of Zenoh, if neither side reaches the other: the code of tcp on cables.
  routed = 3,
};

TENDON_WORDS(PathKind, none, shm, tcp, routed);

/// The path of a link, and why: "shm: same host, proved by a shared mapping".
struct Path {
  PathKind kind = PathKind::none;
  std::string reason;

  [[nodiscard]] std::string to_string() const {
    return std::string(v0::to_string(kind)) + ": " + reason;
  }
  friend std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.to_string();
  }
};

}  // namespace v0
}  // namespace tendon
