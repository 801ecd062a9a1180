// SPDX-License-Identifier: Apache-2.0
// The bits of `features` in a hello: additions to 1.0 that a side understands. A link uses the
// features that both of its hellos name: docs/protocol.md, "Features".
#pragma once

#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// The numbers are on the wire: append only.
enum class Feature : std::uint64_t {
  /// `open` may name a purpose in place of a ticket, and either side of a link may open. The side
  /// that connected takes odd numbers, the other one even numbers.
  purposes = 1u << 0,
  retire = 1u << 1,          ///< unused links end by agreement
  clock = 1u << 2,           ///< kind `clock`
  publish_pool = 1u << 3,    ///< takes slots with several readers, and returns holds of them
  window_in_open = 1u << 4,  ///< `open` says how much its sender leaves untaken
  devices = 1u << 5,         ///< offers of GPUs, and schemas that say which leaves lie on them
  heads = 1u << 6,  ///< head pages and kind `head`: a publisher's last position when it ends
  many_channels = 1u << 7,  ///< kMaxPipesPerLink pipes, and kMaxAnnouncements keys
  // 8 and 9 are reserved for features that are not built yet.
  device_samples = 1u << 10,  ///< device parts whose bytes are already there: `word` 0
  lanes_at_once = 1u << 11,   ///< one ticket of a link admits each of its lanes once, in any order
};

/// A set of features.
class Features {
 public:
  constexpr Features() = default;
  explicit constexpr Features(std::uint64_t bits) : bits_(bits) {}
  /// The features that this build knows of a minor version of the protocol.
  [[nodiscard]] static constexpr Features of_minor(std::uint16_t minor) {
    constexpr auto kOfMinor1 = static_cast<std::uint64_t>(Feature::purposes) |
                               static_cast<std::uint64_t>(Feature::retire) |
                               static_cast<std::uint64_t>(Feature::clock) |
                               static_cast<std::uint64_t>(Feature::publish_pool) |
                               static_cast<std::uint64_t>(Feature::window_in_open);
    constexpr auto kOfMinor2 = kOfMinor1 | static_cast<std::uint64_t>(Feature::devices) |
                               static_cast<std::uint64_t>(Feature::heads) |
                               static_cast<std::uint64_t>(Feature::many_channels) |
                               static_cast<std::uint64_t>(Feature::device_samples) |
                               static_cast<std::uint64_t>(Feature::lanes_at_once);
    return Features(minor == 0 ? 0 : minor == 1 ? kOfMinor1 : kOfMinor2);
  }

  [[nodiscard]] constexpr bool has(Feature feature) const {
    return (bits_ & static_cast<std::uint64_t>(feature)) != 0;
  }
  [[nodiscard]] constexpr Features both(Features other) const {
    return Features(bits_ & other.bits_);
  }
  [[nodiscard]] constexpr std::uint64_t bits() const { return bits_; }

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace tendon::v0::detail
