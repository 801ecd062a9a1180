// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/fabric/limits.hpp>
#include <utility>
#include <vector>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The most keys that a side of a link may announce on it, over all of its pipes of purpose
/// `discovery`.
struct AnnouncingLimits {
  std::size_t keys = kMaxAnnouncements;
  std::uint64_t bytes = kMaxAnnouncedBytes;

  [[nodiscard]] static AnnouncingLimits of(const Link& link) noexcept {
    if (link.features().has(Feature::many_channels)) return {};
    return {kMaxOldAnnouncements, kMaxOldAnnouncedBytes};
  }
  /// Checks that one of `size_bytes` may be added to these. Errors: limit_exceeded, naming the
  /// constant.
  [[nodiscard]] Result<void> admit(std::size_t key_count, std::uint64_t key_bytes,
                                   std::size_t size_bytes) const;
};

/// The announcements of one link's peer: each key once, however many of its pipes announce it.
///
/// Owns:    the keys, within the limits.
/// Threads: none of its own.
/// Errors:  limit_exceeded.
/// Blocks:  never.
/// Cost:    for each change: a look into a tree.
class AnnouncedKeys {
 public:
  /// A peer may know this Context under several addresses, and opens a pipe for each.
  static constexpr std::size_t kMostPipes = 8;
  /// The same with pipes that are over, and whose keys are not forgotten yet.
  static constexpr std::size_t kMostWithLeaving = 2 * kMostPipes;
  /// A pipe, as a number below kMostWithLeaving.
  using Pipe = std::size_t;

  explicit AnnouncedKeys(const AnnouncingLimits& limits) : limits_(limits) {}

  /// True: no pipe had announced it before.
  [[nodiscard]] Result<bool> add(Pipe pipe, const std::string& key);
  /// True: no pipe announces it any more.
  bool remove(Pipe pipe, const std::string& key);
  /// Visits `most` keys, from `from` on, which moves, and removes those of this pipe. Keys that no
  /// pipe announces any more are added to `gone`. False: that was the last key.
  bool remove_some(Pipe pipe, std::size_t most, std::string& from, std::vector<std::string>& gone);

  // Pipes
  /// The number of a new pipe; kMostWithLeaving: there are too many already.
  [[nodiscard]] Pipe take_pipe() noexcept;
  /// Frees the number of a pipe without keys.
  void give_pipe_back(Pipe pipe) noexcept { pipes_.reset(pipe); }

 private:
  using Pipes = std::bitset<kMostWithLeaving>;
  using Keys = std::map<std::string, Pipes, std::less<>>;
  /// Returns the next one, and whether the key was removed.
  std::pair<Keys::iterator, bool> remove(Pipe pipe, Keys::iterator place);

  const AnnouncingLimits limits_;
  Keys keys_;
  std::uint64_t bytes_ = 0;
  Pipes pipes_;
};

}  // namespace tendon::v0::detail
