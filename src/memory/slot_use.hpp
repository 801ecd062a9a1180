// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

/// One use of a slot: the owner's hold of it, and those of links. A link has one for each of its
/// pipes that was shown the slot.
///
/// Owns:    the counts.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look over the links that have the slot.
class SlotUse {
 public:
  using LinkNumber = std::uint64_t;

  /// Begins the use with this number. The use before it has no hold left.
  void begin(std::uint64_t generation) noexcept {
    generation_ = generation;
    owned_ = true;
  }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] bool is_with_links() const noexcept { return !shares_.empty(); }
  [[nodiscard]] bool is_free() const noexcept { return !owned_ && shares_.empty(); }

  /// Drops the owner's hold. False: it was dropped before.
  [[nodiscard]] bool drop_owner() noexcept { return std::exchange(owned_, false); }
  /// The number of this link's holds; null: none.
  [[nodiscard]] std::uint32_t* holds_of(LinkNumber link) noexcept {
    const auto share = std::ranges::find(shares_, link, &Share::link);
    return share == shares_.end() ? nullptr : &share->holds;
  }
  /// Adds the first hold of this link.
  void add(LinkNumber link) { shares_.push_back({link, 1}); }
  /// Ends `count` holds of this link, or as many as it has.
  struct Ended {
    std::uint32_t count = 0;
    std::uint32_t left = 0;
  };
  Ended end(LinkNumber link, std::uint32_t count) noexcept {
    const auto share = std::ranges::find(shares_, link, &Share::link);
    if (share == shares_.end()) return {};
    count = std::min(count, share->holds);
    const std::uint32_t left = share->holds -= count;
    if (left == 0) {
      *share = shares_.back();
      shares_.pop_back();
    }
    return {count, left};
  }

  // For holds of readers over sockets, which share the memory that one send keeps.
  /// True: it is the first.
  [[nodiscard]] bool begin_send() noexcept { return sends_++ == 0; }
  /// True: these were the last.
  [[nodiscard]] bool end_sends(std::uint32_t count) noexcept { return (sends_ -= count) == 0; }

 private:
  struct Share {
    LinkNumber link;
    std::uint32_t holds;
  };

  std::uint64_t generation_ = 0;
  bool owned_ = false;
  std::uint32_t sends_ = 0;
  std::vector<Share> shares_;
};

}  // namespace tendon::v0::detail
