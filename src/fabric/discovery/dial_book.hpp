// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/fabric/limits.hpp>
#include <vector>

namespace tendon::v0::detail {

/// The addresses that a program named, and the outcome of dialling each.
///
/// Owns:    kMaxStaticPeers addresses at most.
/// Threads: its owner's lock is held.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look into a tree.
class DialBook {
 public:
  /// Adds an address. False: there are as many as allowed, and this one is not among them.
  [[nodiscard]] bool add(const std::string& address) {
    if (places_.size() >= kMaxStaticPeers && !places_.contains(address)) return false;
    places_.try_emplace(address);
    return true;
  }
  void note_dialled(const std::string& address) {
    places_[address].dialled = Dialled::at_least_once;
  }
  /// `error` is that of the last dial, empty if a node answered.
  void note_outcome(const std::string& address, std::string error) {
    places_[address].error = std::move(error);
  }
  [[nodiscard]] bool has_dialled(const std::string& address) const {
    const auto found = places_.find(address);
    return found != places_.end() && found->second.dialled == Dialled::at_least_once;
  }
  [[nodiscard]] bool has_dialled_all() const {
    return std::ranges::all_of(
        places_, [](const auto& each) { return each.second.dialled == Dialled::at_least_once; });
  }
  [[nodiscard]] std::vector<DialAttempt> tried() const {
    std::vector<DialAttempt> tried;
    for (const auto& [address, place] : places_)
      if (place.dialled == Dialled::at_least_once) tried.push_back({address, place.error});
    return tried;
  }

 private:
  enum class Dialled : std::uint8_t { not_yet, at_least_once };
  struct Place {
    Dialled dialled = Dialled::not_yet;
    std::string error{};
  };
  std::map<std::string, Place> places_;
};

}  // namespace tendon::v0::detail
