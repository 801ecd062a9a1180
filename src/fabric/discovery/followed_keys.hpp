// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "fabric/discovery/discovery.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A followed set of keys, and its known keys.
struct FollowedKeys {
  /// Losses in a flood: keys that found no room, or words of the watch.
  enum class Missed : std::uint8_t { nothing, keys, changes };
  /// The task of on_time() for a pattern.
  enum class Next : std::uint8_t { nothing, ask, begin };
  using Keys = std::set<std::string, std::less<>>;

  std::size_t count = 0;
  std::uint64_t number = 0;  // of the declaration: words of an earlier watch are old
  Picture picture = Picture::incomplete;
  Missed missed = Missed::nothing;
  Next next = Next::nothing;
  Keys keys;
  Keys unconfirmed;  // known before words were missed; those not reported again are withdrawn
  ZenohPort::Handle watch;
  ZenohPort::Handle request;
};

}  // namespace tendon::v0::detail
