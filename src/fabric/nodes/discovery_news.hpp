// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tendon/core/context_id.hpp>

namespace tendon::v0::detail {

/// Decides which changes of discovery a node reports to its program. A withdrawn token may be back
/// at once, because another process serves now: so a loss has to last for kLasts.
///
/// Owns:    the reported names and Contexts.
/// Threads: its owner's lock is held.
/// Errors:  none.
/// Blocks:  never. It reads no clock.
/// Cost:    looks into trees.
class DiscoveryNews {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kLasts{500};

  /// Notes that so many nodes have this name. True once for each name, until there is one node of
  /// it again.
  [[nodiscard]] bool is_twin(const std::string& name, std::size_t count) {
    if (count >= 2) return twins_.insert(name).second;
    twins_.erase(name);
    return false;
  }

  /// Notes that discovery lost this node, while samples of it arrive. False: that is known.
  bool note_missing(const ContextId& context, const std::string& name, Time now) {
    return missing_.try_emplace(context, Missing{name, now + kLasts}).second;
  }
  /// Forgets those for which `is_back(context)`, and passes to `tell(name)` those that were missing
  /// for long enough.
  template <class IsBack, class Tell>
  void tell_of_missing(Time now, IsBack is_back, Tell tell) {
    std::erase_if(missing_, [&](const auto& entry) {
      const auto& [context, missing] = entry;
      if (is_back(context)) return true;
      if (now < missing.due) return false;
      tell(missing.name);
      return true;
    });
  }

  /// Whether a router answers.
  enum class Answer : std::uint8_t { none, one };
  enum class RouterNews : std::uint8_t { none, found, lost };
  /// `look_at` becomes the time of the next look, if there is one.
  [[nodiscard]] RouterNews note_routers(Answer answer, Time now, std::optional<Time>& look_at) {
    if (answer == Answer::one) {
      const bool is_news = routers_ == Routers::lost || routers_ == Routers::awaited;
      routers_ = Routers::there;
      lost_at_ = std::nullopt;
      return is_news ? RouterNews::found : RouterNews::none;
    }
    if (routers_ == Routers::lost) return RouterNews::none;
    if (routers_ == Routers::there) routers_ = Routers::gone;
    if (!lost_at_) look_at = lost_at_ = now + kLasts;
    if (now < *lost_at_) return RouterNews::none;
    routers_ = Routers::lost;
    return RouterNews::lost;
  }
  /// Notes that the node joined without a router.
  void await_routers() { routers_ = Routers::awaited; }

 private:
  struct Missing {
    std::string name;
    Time due;
  };
  /// `gone`: not for long enough to report it.
  enum class Routers : std::uint8_t { awaited, there, gone, lost };

  std::set<std::string> twins_;
  std::map<ContextId, Missing> missing_;
  Routers routers_ = Routers::there;
  std::optional<Time> lost_at_{};
};

}  // namespace tendon::v0::detail
