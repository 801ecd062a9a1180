// SPDX-License-Identifier: Apache-2.0
// The targets that a Dialler is asked to reach.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <vector>

namespace tendon::v0::detail {

/// A thing that a Dialler tries to reach until it succeeds.
struct DialTarget {
  /// The source of a peer's addresses.
  enum class Whence : std::uint8_t {
    user,         ///< the program's user named it
    this_host,    ///< a socket of this user is tried first, announced addresses later
    announcement  ///< anybody may have written it
  };
  /// The terms of one attempt.
  struct Dial {
    Deadline deadline;
    Whence whence;  ///< this_host: by the socket of this user alone
  };
  enum class Outcome : std::uint8_t {
    done,       ///< there is nothing left to do
    again,      ///< this target pauses; its peer was reached
    unreached,  ///< the peer pauses
  };
  using Attempt = std::function<Outcome(const Dial&)>;
  enum class Haste : std::uint8_t {
    none,
    called,  ///< a call waits for the target, so a pause of its peer ends
  };

  std::string key;
  std::string peer;  ///< the target is reached through it
  Attempt attempt;
  Whence whence = Whence::announcement;
  std::vector<std::string> addresses = {};  ///< announced addresses to knock at
  Haste haste = Haste::none;
};

}  // namespace tendon::v0::detail
