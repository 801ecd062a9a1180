// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "memory/publish_pool.hpp"
#include "runtime/link_table.hpp"
#include "runtime/stopped_sends.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The memory that only this Context writes and others may read: the publish pool, and segments of
/// groups. It records which segments were shown on which link.
///
/// Owns:    the publish pool; a share of each other segment until forget().
/// Threads: thread-safe. Its lock is taken before a link's sending lock.
/// Errors:  those of the pool and of the links.
/// Blocks:  never.
/// Cost:    a lock and a look over the shown segments; a system call for a segment new to a link.
class Publishing {
 public:
  Publishing(std::uint64_t cap_bytes, const LinkTable& links)
      : pool_(std::make_shared<PublishPool>(cap_bytes)), sends_(pool_), links_(links) {}

  // The publish pool
  [[nodiscard]] const std::shared_ptr<PublishPool>& pool() const noexcept { return pool_; }
  /// Takes a slot for one sample. Stalled sends over sockets leave room for it. When the pool is
  /// full, the slots that links have returned are collected first. No lock of a link is held.
  [[nodiscard]] Result<std::shared_ptr<PublishedSlot>> acquire(std::uint64_t size_bytes);
  [[nodiscard]] StoppedSends& sends() noexcept { return sends_; }
  /// Like Link::prepare(), for an op with `published`: shares its segment with the link first.
  /// `later`: the window is closed, or the link's socket is full.
  [[nodiscard]] Result<Sent> prepare(Link& link, SendOp& op, Deadline deadline);

  // Segments that are shown to one pipe of a peer
  /// A name for a segment that its maker itself shows, to each pipe once.
  [[nodiscard]] std::uint32_t new_name() {
    const Lock lock(mutex_);
    return next_name_++;
  }
  /// The name of a segment, for show() and in messages.
  [[nodiscard]] std::uint32_t name(const std::shared_ptr<Segment>& segment);
  /// Lets the peer's sink of `pipe` read it; does nothing if it was shown before. `later`: try
  /// again.
  [[nodiscard]] Result<Sent> show(Link& link, std::uint32_t pipe,
                                  const std::shared_ptr<Segment>& segment);
  /// Drops the segment's name; a process that has mapped the segment keeps it.
  void forget(const std::shared_ptr<Segment>& segment);

  /// Names of such segments; those of the publish pool are lower.
  static constexpr std::uint32_t kFirstName = PublishPool::kFirstSegment + SlotPool::kMaxSegments;

 private:
  /// A pipe of a link; pipe 0 is the link itself. A sink keeps the segments that it was shown while
  /// it exists. So a group that has ended holds nothing of another member on a surviving link, and
  /// the next group must be shown the segments again.
  struct Audience {
    std::weak_ptr<const Link> link;
    std::uint32_t pipe = 0;
  };
  struct Shown {
    std::shared_ptr<Segment> segment;  // null: a segment of the publish pool
    std::uint32_t name = 0;
    std::vector<Audience> to;
  };

  [[nodiscard]] Shown* find(std::uint32_t name) TENDON_REQUIRES(mutex_);
  /// Calls `pass` to show it, once for each audience. A concurrent caller waits until it was shown.
  template <class Pass>
  [[nodiscard]] Result<Sent> show_once(std::uint32_t name, const Audience& audience, Pass pass);
  [[nodiscard]] bool was_shown(std::uint32_t name, const Audience& audience)
      TENDON_REQUIRES(mutex_);
  void note_shown(std::uint32_t name, const Audience& audience) TENDON_REQUIRES(mutex_);

  const std::shared_ptr<PublishPool> pool_;
  StoppedSends sends_;
  const LinkTable& links_;
  Mutex mutex_;
  std::vector<Shown> shown_ TENDON_GUARDED_BY(mutex_);
  std::uint32_t next_name_ TENDON_GUARDED_BY(mutex_) = kFirstName;
};

}  // namespace tendon::v0::detail
