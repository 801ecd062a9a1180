// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

#include "runtime/context_core.hpp"
#include "transport/held_bytes.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The shares of a link's limit that the steps of collectives on one channel hold, from their
/// arrival until an operation takes them. A sender that is far ahead therefore finds its link
/// paused, or its window shut, by the link's own rule. The link takes shares back only under its
/// receive lock, which an operation cannot take: they wait here in between.
///
/// Owns:    released shares that were not returned yet; a share of the link.
/// Threads: thread-safe; its own lock is the innermost one.
/// Errors:  none.
/// Blocks:  settle(), while another thread receives from the link.
/// Cost:    a lock a step, and one more of the link for all that were taken together.
class HeldSteps final : public Work, public std::enable_shared_from_this<HeldSteps> {
 public:
  /// The share of one step.
  class Part {
   public:
    Part() = default;
    Part(std::shared_ptr<HeldSteps> home, HeldBytes::Share share)
        : home_(std::move(home)), share_(std::move(share)) {}
    Part(Part&&) noexcept = default;
    Part& operator=(Part&& other) noexcept {
      if (this == &other) return *this;
      drop();
      home_ = std::move(other.home_);
      share_ = std::move(other.share_);
      return *this;
    }
    /// Runs if no operation took the step: a thread that makes progress is asked to settle(), also
    /// within a call that waits for data behind the pause.
    ~Part() { drop(); }

    /// Releases the share of a step that an operation has taken. The caller ensures that settle()
    /// follows.
    void let_go() {
      if (home_ != nullptr) (void)std::exchange(home_, nullptr)->add(std::move(share_));
    }
    /// Returns it at once: the caller has the link's receive lock.
    void give_back() noexcept {
      share_.give_back();
      home_ = nullptr;
    }

   private:
    void drop() {
      if (const auto home = std::exchange(home_, nullptr); home != nullptr)
        if (home->add(std::move(share_))) home->settle_soon();
    }
    std::shared_ptr<HeldSteps> home_;  // null: nothing is held
    HeldBytes::Share share_;
  };

  HeldSteps(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link)
      : context_(std::move(context)), link_(std::move(link)) {}

  /// Returns the released shares to the link.
  void settle() TENDON_EXCLUDES(link_->receive_mutex());

  // Work
  bool progress() override {
    settle();
    return false;
  }

 private:
  /// True: the first one since settle().
  bool add(HeldBytes::Share share);
  void settle_soon();

  const std::shared_ptr<ContextCore> context_;
  const std::shared_ptr<Link> link_;
  Mutex mutex_;
  std::vector<HeldBytes::Share> let_go_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};  // in let_go_
};

}  // namespace tendon::v0::detail
