// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tendon/fabric/key_expression.hpp>
#include <vector>

namespace tendon::test {

/// An index of keys and sets of keys by their chunks. It finds those of many that may intersect
/// another one, without a look at each.
class KeyIndex {
 public:
  using Number = std::uint64_t;

  void add(const KeyExpression& key, Number number) {
    if (key.is_key()) {
      keys_.insert(number);
      for (const Place& place : places_of(key)) keys_at_[place].insert(number);
    } else {
      sets_.insert(number);
      if (const auto place = firm_place(key))
        sets_at_[*place].insert(number);
      else
        loose_.insert(number);
    }
  }
  void remove(const KeyExpression& key, Number number) {
    if (key.is_key()) {
      keys_.erase(number);
      for (const Place& place : places_of(key)) take_out(keys_at_, place, number);
    } else {
      sets_.erase(number);
      loose_.erase(number);
      if (const auto place = firm_place(key)) take_out(sets_at_, *place, number);
    }
  }

  /// Returns all that intersect `key`, and some that do not.
  [[nodiscard]] std::set<Number> near(const KeyExpression& key) const {
    std::set<Number> found;
    if (key.is_key()) {
      found = loose_;
      for (const Place& place : places_of(key)) put_in(found, sets_at_, place);
    } else {
      found = sets_;
    }
    if (const auto place = firm_place(key)) {
      put_in(found, keys_at_, *place);
    } else {
      found.insert(keys_.begin(), keys_.end());
    }
    return found;
  }

 private:
  /// A chunk without a wildcard, and the number of chunks on one side of it.
  struct Place {
    bool from_end = false;
    std::size_t distance = 0;
    std::string chunk;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  [[nodiscard]] static std::vector<std::string_view> chunks_of(const KeyExpression& key) {
    std::vector<std::string_view> chunks;
    std::string_view left = key.text();
    for (auto end = left.find('/'); end != std::string_view::npos; end = left.find('/')) {
      chunks.push_back(left.substr(0, end));
      left.remove_prefix(end + 1);
    }
    chunks.push_back(left);
    return chunks;
  }

  [[nodiscard]] static std::vector<Place> places_of(const KeyExpression& key) {
    std::vector<Place> places;
    const auto chunks = chunks_of(key);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      places.push_back({false, i, std::string(chunks[i])});
      places.push_back({true, chunks.size() - 1 - i, std::string(chunks[i])});
    }
    return places;
  }

  /// Returns the last place at which every key of the set has the same chunk: it is the most
  /// selective.
  [[nodiscard]] static std::optional<Place> firm_place(const KeyExpression& key) {
    const auto chunks = chunks_of(key);
    std::size_t firm = chunks.size();  // chunks in front of the first "**"
    std::size_t end = 0;               // the chunks behind the last "**" begin here
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (chunks[i] != "**") continue;
      firm = std::min(firm, i);
      end = i + 1;
    }
    for (std::size_t i = chunks.size(); i-- > 0;) {
      if (chunks[i].find('*') != std::string_view::npos) continue;
      if (i < firm) return Place{false, i, std::string(chunks[i])};
      if (i >= end) return Place{true, chunks.size() - 1 - i, std::string(chunks[i])};
    }
    return std::nullopt;
  }

  using Numbers = std::map<Place, std::set<Number>>;
  static void put_in(std::set<Number>& found, const Numbers& from, const Place& place) {
    const auto there = from.find(place);
    if (there != from.end()) found.insert(there->second.begin(), there->second.end());
  }
  static void take_out(Numbers& from, const Place& place, Number number) {
    const auto there = from.find(place);
    if (there != from.end() && there->second.erase(number) != 0 && there->second.empty())
      from.erase(there);
  }

  Numbers keys_at_;         // a key has an entry for each of its chunks
  Numbers sets_at_;         // a set has one at its firm place
  std::set<Number> loose_;  // sets without a firm place
  std::set<Number> keys_;
  std::set<Number> sets_;
};

}  // namespace tendon::test
