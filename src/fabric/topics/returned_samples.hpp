// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tendon/fabric/sample.hpp>
#include <utility>

#include "channel/placement.hpp"
#include "fabric/samples/direct_sample.hpp"

namespace tendon::v0::detail {

/// A sample, and which one it is of all that a subscriber took.
struct NumberedSample {
  std::uint64_t number = 0;
  Sample sample{};
  /// Where its tensors lay at the publisher, and are not yet; null: in host memory, or they lie
  /// where they are wanted.
  std::shared_ptr<const Placement> placement{};
  /// Its tensors lie there, in memory of the publisher; null: in host memory.
  std::shared_ptr<DirectSample> direct{};
};

/// Samples that were taken and not wanted, for the next receiver, in the order in which they were
/// taken. A number of 0 is that of a receiver that has just returned.
class ReturnedSamples {
 public:
  /// `before_equals`: it was the head, and its receiver could not use it.
  enum class Place : std::uint8_t { behind_equals, before_equals };
  void put(NumberedSample returned, Place place) {
    const std::uint64_t number = returned.number;
    const auto behind =
        place == Place::before_equals ? samples_.lower_bound(number) : samples_.upper_bound(number);
    samples_.emplace_hint(behind, number, std::move(returned));
  }
  [[nodiscard]] std::optional<NumberedSample> take() {
    if (samples_.empty()) return std::nullopt;
    return std::move(samples_.extract(samples_.begin()).mapped());
  }
  void clear() { samples_.clear(); }

 private:
  std::multimap<std::uint64_t, NumberedSample> samples_;
};

}  // namespace tendon::v0::detail
