// SPDX-License-Identifier: Apache-2.0
// The members of a group as threads of a test, each with its own Context.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <tendon/group/group.hpp>
#include <thread>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {

using namespace std::chrono_literals;

/// Returns an address that no other test has.
inline std::string fresh_group_address() {
  static std::atomic<int> count{0};
  return "unix:@tendon-test-group-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

/// Names a test by its transport: members on one host have shared memory unless they choose tcp.
inline constexpr auto path_name = [](const auto& tested) -> std::string {
  return tested.param == Transport::tcp ? "tcp" : "shm";
};

struct GroupMembersOptions {
  Progress progress = Progress::service;
  Transport transport = Transport::automatic;
  WaitPolicy wait_policy = WaitPolicy::balanced;
  GroupOptions group = {};
  /// A letter for each member, if not empty: the name of its host. Members on the first host are
  /// connected by shm, all others by tcp. Needs may_name_hosts().
  std::string hosts = {};
};

/// Puts this thread on a host of that name from now on. False: not allowed here.
inline bool name_host(const std::string& name) {
  return unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
}
inline bool may_name_hosts() {
  bool may = false;
  std::thread([&] { may = name_host("a"); }).join();
  return may;
}

/// Calls `body` in one thread for each of `count` members of one group.
inline void run_members(std::uint32_t count, const std::function<void(Context&, Group&)>& body,
                        const GroupMembersOptions& options = {}) {
  const std::string address = fresh_group_address();
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      Transport transport = options.transport;
      if (!options.hosts.empty()) {
        ASSERT_TRUE(name_host("host-" + options.hosts.substr(rank, 1)));
        transport = options.hosts[rank] == options.hosts[0] ? Transport::automatic : Transport::tcp;
      }
      auto context = Context::create({.name = "member " + std::to_string(rank),
                                      .progress = options.progress,
                                      .wait_policy = options.wait_policy,
                                      .transport = transport,
                                      .lease = kLongLease});
      ASSERT_TRUE(context) << context.error().message();
      auto group = Group::join(*context, Rendezvous::at(address, GroupRank{rank}, count), 30s,
                               options.group);
      ASSERT_TRUE(group) << "rank " << rank << ": " << group.error().message();
      body(*context, *group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tendon::test
