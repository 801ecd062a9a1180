// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/memory/storage.hpp>

#include "core/fd.hpp"
#include "fabric/ways/cable.hpp"
#include "runtime/connect.hpp"

namespace tendon::v0::detail {

/// A cable of this Context, as the thread sees it.
struct LaidCable {
  Cable cable;
  KeyExpression key;  // the destination of its frames
  Lane lane;
  OwnedFd far;
  std::deque<Storage> frames;     // arrived, and not written to the pair yet
  std::size_t written_bytes = 0;  // of the payload of the first frame
  std::string why_cut = {};       // not empty: the cable is over
  std::chrono::steady_clock::time_point next_beat = {};
  std::chrono::steady_clock::time_point hung_up_at =
      {};  // by the link, while there was no room for its last bytes
};

}  // namespace tendon::v0::detail
