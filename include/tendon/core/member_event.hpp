// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/context_id.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// A change of a peer of a Context.
enum class MemberEventKind : std::uint8_t {
  joined,   ///< a link to it was made
  suspect,  ///< silent for a while, not proved dead: nothing is reclaimed
  alive,    ///< was suspect, shows signs of life again
  left,     ///< closed its Context in order
  lost,     ///< died, or cannot be reached any more
  unsent,   ///< this Context ended before everything was sent to it
};

TENDON_WORDS(MemberEventKind, joined, suspect, alive, left, lost, unsent);

/// One event, published by the runtime to everything above it.
struct MemberEvent {
  MemberEventKind kind = MemberEventKind::joined;
  std::string member;  ///< "learner (host a, pid 4711)"
  std::string reason;
  std::chrono::steady_clock::time_point when;
  ContextId context{};  ///< of the peer: a restarted process has another one

  friend std::ostream& operator<<(std::ostream& out, const MemberEvent& event) {
    return out << to_string(event.kind) << ": " << event.member << ": " << event.reason;
  }
};

}  // namespace v0
}  // namespace tendon
