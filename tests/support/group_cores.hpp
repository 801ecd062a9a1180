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
  explicit GroupCores(std::uint32_t count, Transport transport = Transport::automatic,
                      std::uint64_t link_cap_bytes = 0)
      : cores(count),
        options_{.progress = Progress::manual,
                 .transport = transport,
                 .link_cap_bytes = link_cap_bytes,
                 .linger = 0ms,
                 .lease = kLongLease} {
    for (std::uint32_t rank = 0; rank < count; ++rank)
      contexts.push_back(Context::create(options_).value());
  }
  ~GroupCores() {
    for (const auto& core : cores)
      if (core != nullptr) core->leave();
  }
  void join() {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < cores.size(); ++rank)
      threads.emplace_back([this, rank] { join(rank); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& core : cores) ASSERT_TRUE(core != nullptr);
  }
  /// The process of that member ends.
  void end(std::uint32_t rank) {
    cores[rank]->leave();
    cores[rank].reset();
    contexts[rank] = Context::create(options_).value();
  }
  /// Another process, in the place of one that has ended. Waits until the others let it in.
  void replace(std::uint32_t rank) { join(rank); }
  bool progress_until(const std::function<bool()>& condition) {
    return eventually(condition, [&] {
      for (Context& context : contexts) context.progress();
    });
  }

  std::vector<Context> contexts;
  std::vector<std::shared_ptr<detail::GroupCore>> cores;

 private:
  void join(std::uint32_t rank) {
    const auto size = static_cast<std::uint32_t>(cores.size());
    auto core = detail::GroupCore::join(detail::Engine::of(contexts[rank]),
                                        Rendezvous::at(address_, GroupRank{rank}, size), {}, 30s);
    ASSERT_TRUE(core) << core.error().message();
    cores[rank] = *std::move(core);
  }

  const ContextOptions options_;
  const std::string address_ = fresh_group_address();
};

}  // namespace tendon::test
