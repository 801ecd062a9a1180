// SPDX-License-Identifier: Apache-2.0
#include "group/membership/arrivals.hpp"

namespace tendon::v0::detail {

Arrivals::Arrivals(std::uint32_t self, std::uint32_t size) : size_(size) {
  for (std::uint32_t place = 0; place < size; ++place) others_.set(place, place != self);
}

void Arrivals::dial(std::uint32_t place) {
  dialled_.set(place);
  known_.reset(place);
}

void Arrivals::answer(std::uint32_t place) {
  if (dialled_[place]) known_.set(place);
}

void Arrivals::come(std::uint32_t place) {
  dialled_.reset(place);
  known_.set(place);
}

std::string Arrivals::missing_ranks() const {
  const MemberMask missing_here = missing();
  std::string text;
  for (std::uint32_t place = 0; place < size_; ++place)
    if (missing_here[place]) text += (text.empty() ? "rank " : ", ") + std::to_string(place);
  return text + " of " + std::to_string(size_);
}

}  // namespace tendon::v0::detail
