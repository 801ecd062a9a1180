// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tendon/fabric/sample.hpp>
#include <utility>

namespace tendon::v0::detail {

/// A sample, and which one it is of all that a subscriber took.
struct NumberedSample {
  std::uint64_t number = 0;
  Sample sample;
};

/// Samples that were taken and not wanted, for the next receiver, in the order in which they were
/// taken. A number of 0 is that of a receiver that has just returned.
class ReturnedSamples {
 public:
  void put(std::uint64_t number, Sample sample) { samples_.emplace(number, std::move(sample)); }
  [[nodiscard]] std::optional<NumberedSample> take() {
    if (samples_.empty()) return std::nullopt;
    auto first = samples_.extract(samples_.begin());
    return NumberedSample{first.key(), std::move(first.mapped())};
  }
  void clear() { samples_.clear(); }

 private:
  std::multimap<std::uint64_t, Sample> samples_;
};

}  // namespace tendon::v0::detail
