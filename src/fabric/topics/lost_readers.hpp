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
/// and continue, also while the publisher is being closed.
///
/// Owns:    shares of lost links. The last share of a link must not be dropped under a lock:
///          released shares are returned.
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
    bool confirmed = false;  ///< it had taken all that it was shown

    [[nodiscard]] const ContextId& context() const noexcept { return link->peer().context; }
  };

  using Links = std::vector<std::shared_ptr<Link>>;

  [[nodiscard]] Links add(Reader reader) {
    Links gone;
    if (readers_.size() >= kMost) gone.push_back(take(readers_.begin()));
    readers_.push_back(std::move(reader));
    return gone;
  }
  [[nodiscard]] bool knows(const ContextId& context) const {
    return std::ranges::find(readers_, context, &Reader::context) != readers_.end();
  }
  /// Handles a new link of it: one subscription for a lost one.
  [[nodiscard]] Links returned(const ContextId& context) {
    Links gone;
    const auto found = std::ranges::find(readers_, context, &Reader::context);
    if (found != readers_.end()) gone.push_back(take(found));
    return gone;
  }
  /// Stops waiting.
  [[nodiscard]] Links forget_all() {
    Links gone;
    while (!readers_.empty()) gone.push_back(take(readers_.begin()));
    return gone;
  }
  /// Notes that the publisher is being closed since `now`: it waits for readers that were lost
  /// within the lease before, and forgets those that were silent for kForgotten leases.
  [[nodiscard]] Links close(Time now, std::chrono::milliseconds lease) {
    closing_at_ = now;
    lease_ = lease;
    Links gone;
    // The oldest are first.
    while (!readers_.empty() && now - readers_.front().at > kForgotten * lease)
      gone.push_back(take(readers_.begin()));
    return gone;
  }
  /// The time until which readers that are behind `last` are awaited; empty: none is.
  [[nodiscard]] std::optional<Time> due(std::uint64_t last, Time now) const {
    std::optional<Time> latest;
    for (const Reader& reader : readers_) {
      const bool is_recent = closing_at_ - reader.at <= lease_ && now < reader.at + lease_;
      if (!is_recent || !is_behind(reader, last)) continue;
      latest = std::max(latest.value_or(Time::min()), reader.at + lease_);
    }
    return latest;
  }
  /// The names of readers that are behind `last`.
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
  [[nodiscard]] std::shared_ptr<Link> take(std::vector<Reader>::iterator reader) {
    std::shared_ptr<Link> link = std::move(reader->link);
    readers_.erase(reader);
    return link;
  }

  std::vector<Reader> readers_;  // the oldest first
  Time closing_at_{};
  std::chrono::milliseconds lease_{};
};

}  // namespace tendon::v0::detail
