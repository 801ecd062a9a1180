// SPDX-License-Identifier: Apache-2.0
// The members of a group without their handles, for what a test tells them itself.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "group/group_core.hpp"
#include "support/group_members.hpp"

namespace tendon::test {

/// They make progress only when the test says so.
class GroupCores {
 public:
  explicit GroupCores(std::uint32_t count, Transport transport = Transport::automatic)
      : cores(count) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      contexts.push_back(
          Context::create({.progress = Progress::manual, .transport = transport}).value());
    }
  }
  ~GroupCores() {
    for (const auto& core : cores)
      if (core != nullptr) core->leave();
  }
  void join() {
    const std::string address = fresh_group_address();
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < cores.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto size = static_cast<std::uint32_t>(cores.size());
        auto core =
            detail::GroupCore::join(detail::Engine::of(contexts[rank]),
                                    Rendezvous::at(address, GroupRank{rank}, size), {}, 30s);
        ASSERT_TRUE(core) << core.error().message();
        cores[rank] = *std::move(core);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& core : cores) ASSERT_TRUE(core != nullptr);
  }
  bool progress_until(const std::function<bool()>& condition) {
    return eventually(condition, [&] {
      for (Context& context : contexts) context.progress();
    });
  }

  std::vector<Context> contexts;
  std::vector<std::shared_ptr<detail::GroupCore>> cores;
};

}  // namespace tendon::test
