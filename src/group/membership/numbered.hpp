// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <ranges>
#include <tendon/core/rank.hpp>
#include <vector>

#include "group/membership/group_place.hpp"

namespace tendon::v0::detail {

/// The first `count` numbers of a kind, from 0 on.
template <class Number>
[[nodiscard]] auto first_numbers(std::size_t count) {
  return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(count)) |
         std::views::transform([](std::uint32_t value) { return Number{value}; });
}

/// A vector that is indexed by numbers of one kind alone: a place cannot be used where ranks are.
template <class Number, class T>
class NumberedBy : private std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::Base;
  using Base::begin;
  using Base::empty;
  using Base::end;
  using Base::push_back;
  using Base::resize;
  using Base::size;
  using typename Base::const_iterator;
  using typename Base::value_type;

  [[nodiscard]] T& operator[](Number number) { return Base::operator[](number.value); }
  [[nodiscard]] const T& operator[](Number number) const { return Base::operator[](number.value); }
  [[nodiscard]] auto numbers() const { return first_numbers<Number>(size()); }
  /// The number of the first equal element.
  [[nodiscard]] std::optional<Number> find(const T& wanted) const {
    const auto found = std::ranges::find(*this, wanted);
    if (found == end()) return {};
    return Number{static_cast<std::uint32_t>(found - begin())};
  }
  friend auto operator<=>(const NumberedBy&, const NumberedBy&) = default;
};
template <class T>
using ByRank = NumberedBy<GroupRank, T>;
template <class T>
using ByPlace = NumberedBy<GroupPlace, T>;

}  // namespace tendon::v0::detail
