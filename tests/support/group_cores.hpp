// SPDX-License-Identifier: Apache-2.0
// The members of a group without their handles, for tests that call the cores directly.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "group/epochs/group_core.hpp"
#include "support/group_members.hpp"

namespace tendon::test {

/// The members make progress only when the test says so.
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
    cores = join_another(address_);
    for (const auto& core : cores) ASSERT_TRUE(core != nullptr);
  }
  /// Makes another group of the same Contexts, which the caller leaves.
  std::vector<std::shared_ptr<detail::GroupCore>> join_another(const std::string& address) {
    std::vector<std::shared_ptr<detail::GroupCore>> joined(cores.size());
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < joined.size(); ++rank)
      threads.emplace_back([&, rank] { joined[rank] = join(rank, address); });
    for (std::thread& thread : threads) thread.join();
    return joined;
  }
  /// Ends the process of that member.
  void end(std::uint32_t rank) {
    cores[rank]->leave();
    cores[rank].reset();
    contexts[rank] = Context::create(options_).value();
  }
  /// Starts another process in the place of one that has ended. Waits until the others admit it.
  void replace(std::uint32_t rank) { cores[rank] = join(rank, address_); }
  bool progress_until(const std::function<bool()>& condition) {
    return eventually(condition, [&] {
      for (Context& context : contexts) context.progress();
    });
  }

  std::vector<Context> contexts;
  std::vector<std::shared_ptr<detail::GroupCore>> cores;

 private:
  std::shared_ptr<detail::GroupCore> join(std::uint32_t rank, const std::string& address) {
    const auto size = static_cast<std::uint32_t>(cores.size());
    auto core = detail::GroupCore::join(detail::ContextCore::of(contexts[rank]),
                                        Rendezvous::at(address, GroupRank{rank}, size), {}, 30s);
    EXPECT_TRUE(core) << core.error().message();
    return core ? *std::move(core) : nullptr;
  }

  const ContextOptions options_;
  const std::string address_ = fresh_group_address();
};

}  // namespace tendon::test
