// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/context_id.hpp>
#include <vector>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// Readers of a publisher whose links were lost, without proof that they are dead: they may return
/// and go on, also while the publisher is being closed.
///
/// Owns:    shares of the links that were lost.
/// Threads: none of its own. It reads no clock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look over kMost readers at most.
class LostReaders {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Reader {
    std::shared_ptr<Link> link;
    std::uint64_t next = 0;  ///< the first sample that it was not shown
    Time at{};
    bool confirmed = false;  ///< it had taken what it was shown
  };

  void add(Reader reader) {
    if (readers_.size() >= kMost) readers_.erase(readers_.begin());
    readers_.push_back(std::move(reader));
  }
  [[nodiscard]] bool knows(const ContextId& context) const {
    return find(context) != readers_.end();
  }
  /// It has a link again: one subscription for one that was lost.
  void returned(const ContextId& context) {
    const auto found = find(context);
    if (found != readers_.end()) readers_.erase(found);
  }
  /// The publisher is being closed since `now`: it waits for those that were lost within the lease
  /// before, and forgets those of which nothing was heard for kForgotten leases.
  void close(Time now, std::chrono::milliseconds lease) {
    std::erase_if(readers_,
                  [&](const Reader& reader) { return now - reader.at > kForgotten * lease; });
    closing_at_ = now;
    lease_ = lease;
  }
  /// Until when one of them is waited for, that is behind `last`; nothing: none is.
  [[nodiscard]] std::optional<Time> due(std::uint64_t last, Time now) const {
    std::optional<Time> latest;
    for (const Reader& reader : readers_) {
      const bool is_recent = closing_at_ - reader.at <= lease_ && now < reader.at + lease_;
      if (!is_recent || !is_behind(reader, last)) continue;
      latest = std::max(latest.value_or(Time::min()), reader.at + lease_);
    }
    return latest;
  }
  /// The names of those that are behind `last`.
  [[nodiscard]] std::vector<std::string> behind(std::uint64_t last) const {
    std::vector<std::string> names;
    for (const Reader& reader : readers_)
      if (is_behind(reader, last)) names.push_back(reader.link->peer_name());
    return names;
  }

  static constexpr std::size_t kMost = 1024;
  static constexpr int kForgotten = 10;

 private:
  [[nodiscard]] static bool is_behind(const Reader& reader, std::uint64_t last) {
    return !reader.link->death_proved() && (reader.next <= last || !reader.confirmed);
  }
  [[nodiscard]] std::vector<Reader>::const_iterator find(const ContextId& context) const {
    return std::ranges::find_if(
        readers_, [&](const Reader& reader) { return reader.link->peer().context == context; });
  }

  std::vector<Reader> readers_;  // the oldest first
  Time closing_at_{};
  std::chrono::milliseconds lease_{};
};

}  // namespace tendon::v0::detail
