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

/// A sample, and its number among all that a subscriber took.
struct NumberedSample {
  std::uint64_t number = 0;
  Sample sample{};
  /// The placement of its tensors at the publisher, if they are not there yet; null: in host
  /// memory, or in their wanted place.
  std::shared_ptr<const Placement> placement{};
  /// Its tensors in memory of the publisher's GPU; null: in host memory.
  std::shared_ptr<DirectSample> direct{};
};

/// Samples that were taken and not wanted, for the next receiver, in the order in which they were
/// taken. Number 0 marks a sample whose receiver has just returned.
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
