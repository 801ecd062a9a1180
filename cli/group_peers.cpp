// SPDX-License-Identifier: Apache-2.0
#include "cli/group_peers.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "cli/benchmark.hpp"

namespace tendon::cli {
namespace {

/// The longest time that the ranks may take to start and to find each other.
constexpr std::chrono::seconds kJoinLimit{30};

/// Rank 0 stores its address here, and the children are started with it.
class StartsChildren final : public RendezvousStore {
 public:
  StartsChildren(std::string role, std::uint32_t ranks, Value::Map parameters)
      : role_(std::move(role)), ranks_(ranks), parameters_(std::move(parameters)) {}

  Result<void> set(std::string_view, std::string_view address, Deadline) override {
    for (std::uint32_t rank = 1; rank < ranks_; ++rank) {
      Value::Map parameters = parameters_;
      parameters.emplace_back("address", address);
      parameters.emplace_back("rank", rank);
      TENDON_TRY(process, PeerProcess::start(role_, std::move(parameters)));
      processes.push_back(std::move(process));
    }
    return {};
  }
  Result<std::string> get(std::string_view key, Deadline) override {
    return Error{ErrorCode::internal, "cli.bench.group",
                 fmt::format("rank 0 asked for '{}', which only it sets", key)};
  }

  std::vector<PeerProcess> processes;

 private:
  std::string role_;
  std::uint32_t ranks_;
  Value::Map parameters_;
};

}  // namespace

std::string rank_name(std::uint32_t rank) { return fmt::format("bench rank {}", rank); }

Result<GroupPeers> start_group(std::string_view role, std::uint32_t ranks,
                               const Value::Map& parameters, ContextOptions options) {
  Value::Map all = parameters;
  all.emplace_back("ranks", ranks);
  all.emplace_back("path", to_string(options.transport));
  all.emplace_back("policy", to_string(options.wait_policy));
  options.name = rank_name(0);
  TENDON_TRY(context, Context::create(std::move(options)));
  const auto store = std::make_shared<StartsChildren>(std::string(role), ranks, std::move(all));
  TENDON_TRY(group, Group::join(context, Rendezvous::through(store, GroupRank{0}, ranks),
                                kJoinLimit, {.listen = "127.0.0.1:0"}));
  return GroupPeers{std::move(context), std::move(store->processes), std::move(group)};
}

Result<GroupChild> join_as_child(const Value& parameters) {
  const auto number = [&](std::string_view key) {
    return static_cast<std::uint32_t>(parameter(parameters, key).as_u64());
  };
  const auto transport = choice<Transport>(parameters, "path");
  const auto policy = choice<WaitPolicy>(parameters, "policy");
  const std::uint32_t rank = number("rank");
  TENDON_TRY(
      context,
      Context::create({.name = rank_name(rank), .wait_policy = policy, .transport = transport}));
  TENDON_TRY(group, Group::join(context,
                                Rendezvous::at(parameter(parameters, "address").as_string(),
                                               GroupRank{rank}, number("ranks")),
                                kJoinLimit, {.listen = "127.0.0.1:0"}));
  return GroupChild{std::move(context), std::move(group)};
}

}  // namespace tendon::cli
