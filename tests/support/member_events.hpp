// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <tendon/runtime/context.hpp>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {

/// Collects the events of Contexts that end before it does.
class MemberEventLog {
 public:
  void watch(Context& context) {
    context.on_member([this](const MemberEvent& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
    });
  }

  /// Waits until an event of this kind about `member` has arrived.
  testing::AssertionResult wait_for(MemberEventKind kind, std::string_view member) {
    return wait_until(kind, member, [&](const MemberEvent& event) {
      return event.member.find(member) != std::string::npos;
    });
  }
  testing::AssertionResult wait_for(MemberEventKind kind, const ContextId& member) {
    return wait_until(kind, member.to_string(),
                      [&](const MemberEvent& event) { return event.context == member; });
  }
  [[nodiscard]] std::size_t count(MemberEventKind kind) {
    std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const MemberEvent& event : events_) count += event.kind == kind ? 1 : 0;
    return count;
  }

 private:
  template <class IsIt>
  testing::AssertionResult wait_until(MemberEventKind kind, std::string_view member, IsIt is_it) {
    std::unique_lock lock(mutex_);
    const auto found = [&] {
      return std::ranges::any_of(
          events_, [&](const MemberEvent& event) { return event.kind == kind && is_it(event); });
    };
    if (changed_.wait_for(lock, kPatience, found)) return testing::AssertionSuccess();
    auto failure = testing::AssertionFailure();
    failure << "no " << to_string(kind) << " of " << member << " but:";
    for (const MemberEvent& event : events_) failure << "\n" << event;
    return failure;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MemberEvent> events_;
};

}  // namespace tendon::test
