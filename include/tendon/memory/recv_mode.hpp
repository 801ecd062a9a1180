// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// Whether a received message may stay in the sender's memory.
enum class RecvMode : std::uint8_t {
  view_or_copy,  ///< a view while the sender keeps two free slots, else a copy (the default)
  view_only,     ///< a view, or `no_credit` and the message stays in the pipe
  copy,          ///< always private memory
};
TENDON_WORDS(RecvMode, view_or_copy, view_only, copy);

}  // namespace v0
}  // namespace tendon
