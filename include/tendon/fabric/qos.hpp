// SPDX-License-Identifier: Apache-2.0
// The promises of a publisher for its topic. SubscriberOptions has the wishes of a subscriber.
#pragma once

#include <cstdint>
#include <string_view>
#include <tendon/core/words.hpp>
#include <tendon/fabric/limits.hpp>

namespace tendon {
inline namespace v0 {

/// How a publisher treats a subscriber that falls behind. Numbers are on the wire.
enum class Overflow : std::uint8_t {
  drop_oldest = 1,  ///< the subscriber misses samples, and learns exactly which
  block = 2,        ///< the publisher waits for it, at most until its deadline
};

TENDON_WORDS(Overflow, drop_oldest, block);

/// The order of two topics. Numbers are on the wire.
enum class Priority : std::uint8_t {
  normal = 1,
  control = 2,  ///< commands: places are kept for them, so that samples never crowd them out
};

TENDON_WORDS(Priority, normal, control);

/// The newest samples of a publisher, for subscribers that are late or behind.
struct History {
  std::uint32_t samples = 1;  ///< 1 to kMaxHistorySamples

  friend bool operator==(const History&, const History&) = default;
};
[[nodiscard]] constexpr History keep_last(std::uint32_t samples) { return {samples}; }

/// The quality of service of one topic.
struct Qos {
  History history = keep_last(1);
  Overflow overflow = Overflow::drop_oldest;
  Priority priority = Priority::normal;

  friend bool operator==(const Qos&, const Qos&) = default;
};

}  // namespace v0
}  // namespace tendon
