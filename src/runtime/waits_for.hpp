// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// While this object lives, the peer of a link rings for more than messages: for slots that it
/// returns, or for flags that it publishes. Check the awaited state also after making this, because
/// earlier events rang no bell.
///
/// Owns:    a count at the link, and a share of the link.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock, and a store to shared memory while some thread of the Context sleeps.
class WaitsFor {
 public:
  using Count = std::atomic<std::uint32_t> Link::*;
  static constexpr Count kReturns = &Link::waiting_for_returns;
  static constexpr Count kFlags = &Link::waiting_for_flags;

  WaitsFor(ContextCore& context, Link& link, Count what)
      : link_(link.shared_from_this()), what_(what) {
    (link.*what).fetch_add(1);
    context.waiting().sleepers().announce_again(link);
  }
  WaitsFor(WaitsFor&& other) noexcept = default;
  WaitsFor& operator=(WaitsFor&&) = delete;
  ~WaitsFor() {
    if (link_ != nullptr) ((*link_).*what_).fetch_sub(1);
  }

 private:
  std::shared_ptr<Link> link_;
  Count what_;
};

/// Holds the receive lock of a link to receive from it. If messages were delivered, its destructor
/// makes other waiting threads look again.
class TENDON_SCOPED_LOCKABLE Receiving {
 public:
  Receiving(ContextCore& context, Link& link) TENDON_ACQUIRES(link.receive_mutex())
      : context_(context), link_(link) {
    link.receive_mutex().lock();
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;
  ~Receiving() TENDON_RELEASES() {
    link_.receive_mutex().unlock();
    if (moved_) context_.waiting().note_moved();
  }
  /// Returns whether anything moved. The lock that it needs is the one that this holds.
  bool poll() TENDON_UNCHECKED_LOCKS {
    const bool moved = link_.poll();
    moved_ = moved_ || moved;
    return moved;
  }

 private:
  ContextCore& context_;
  Link& link_;
  bool moved_ = false;
};

}  // namespace tendon::v0::detail
