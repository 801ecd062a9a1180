// SPDX-License-Identifier: Apache-2.0
//
// Compares a group's all_reduce over several hosts with one composed of groups: on boards inside
// each host, and over links between hosts. It runs as ranks of a launcher (tools/bench_network.py
// --only levels); the ranks of a host are consecutive, and all hosts have the same number. Rank 0
// prints the rows. The times are those of the slowest rank; `cpu_us` is the cost of a call on all
// ranks together.
#include <functional>
#include <tendon/group/group.hpp>
#include <tendon/runtime/context.hpp>
#include <utility>

#include "own_process.hpp"
#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Group;
using tendon::GroupRank;
using tendon::ReduceOp;
using tendon::Tensor;
using Call = std::function<void()>;

constexpr auto kLimit = 60s;

/// The groups of the two levels.
struct Levels {
  Group host;    ///< the ranks of this host
  Group across;  ///< the ranks with the same place on each host
};

Levels split(Group& all) {
  const std::uint32_t rank = all.rank().value;
  std::vector<tendon::GlobalRank> host;
  for (const tendon::GroupMember& member : all.members())
    if (!member.path || member.path->kind == tendon::PathKind::shm)
      host.push_back({member.rank.value});
  const auto members = static_cast<std::uint32_t>(host.size());
  std::vector<tendon::GlobalRank> across;
  for (std::uint32_t other = rank % members; other < all.size(); other += members)
    across.push_back({other});
  Group inside = all.split(host, kLimit, "host").value();
  return {std::move(inside), all.split(across, kLimit, "across").value()};
}

/// Reduces on each host's boards, then between the first ranks of the hosts, then broadcasts on
/// boards.
void by_leaders(Levels& levels, const Tensor& tensor) {
  levels.host.reduce(tensor, ReduceOp::sum, GroupRank{0}, kLimit).value();
  if (levels.host.rank().value == 0)
    levels.across.all_reduce(tensor, ReduceOp::sum, kLimit).value();
  levels.host.broadcast(tensor, GroupRank{0}, kLimit).value();
}

/// The same, but each rank sends a share between the hosts.
void by_shards(Levels& levels, const Tensor& tensor, const Tensor& shard) {
  levels.host.reduce_scatter(tensor, shard, ReduceOp::sum, kLimit).value();
  levels.across.all_reduce(shard, ReduceOp::sum, kLimit).value();
  levels.host.all_gather(shard, tensor, kLimit).value();
}

void check(const Group& all, const Tensor& tensor, const Call& call) {
  auto elements = tensor.span<float>();
  std::fill(elements.begin(), elements.end(), static_cast<float>(all.rank().value + 1));
  call();
  const auto sum = static_cast<float>(all.size() * (all.size() + 1) / 2);
  for (const float element : elements)
    if (element != sum) peer::fail("a wrong element");
  // Sums of zeros stay zero.
  std::fill(elements.begin(), elements.end(), 0.0f);
}

peer::Result measure(Group& all, std::string mode, std::size_t size_bytes,
                     const peer::Options& options, const Call& call) {
  for (std::size_t i = 0; i < options.warm_up_for(size_bytes); ++i) call();
  all.barrier(kLimit).value();
  const double cpu_before_s = peer::cpu_s();
  std::vector<double> samples_us = peer::time_rounds(0, options.iterations_for(size_bytes), call);
  const double cpu_us =
      (peer::cpu_s() - cpu_before_s) * 1e6 / static_cast<double>(samples_us.size());
  peer::Result result = peer::summarize("levels", std::move(mode), size_bytes, samples_us);
  const Tensor worst = Tensor::of<double>({2}, {result.latency_us_p50, result.latency_us_p99});
  all.all_reduce(worst, ReduceOp::max, kLimit).value();
  const Tensor together = Tensor::of<double>({1}, {cpu_us});
  all.all_reduce(together, ReduceOp::sum, kLimit).value();
  result.latency_us_p50 = worst.span<const double>()[0];
  result.latency_us_p99 = worst.span<const double>()[1];
  result.more = {{"cpu_us", together.span<const double>()[0]}};
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse_options(argc, argv, {.begin_bytes = 8});
  tendon::Context context = tendon::Context::create().value();
  Group all = Group::join(context, tendon::Rendezvous::from_environment(), kLimit,
                          {.security = {tendon::Profile::plaintext}})
                  .value();
  Levels levels = split(all);
  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes()) {
    const auto count = static_cast<std::int64_t>(size_bytes / sizeof(float));
    const Tensor tensor = Tensor::zeros(tendon::DType::f32, {count}).value();
    const Tensor shard = Tensor::zeros(tendon::DType::f32, {count / levels.host.size()}).value();
    const std::pair<const char*, Call> ways[] = {
        {"own", [&] { all.all_reduce(tensor, ReduceOp::sum, kLimit).value(); }},
        {"leaders", [&] { by_leaders(levels, tensor); }},
        {"shards", [&] { by_shards(levels, tensor, shard); }}};
    for (const auto& [mode, call] : ways) {
      check(all, tensor, call);
      results.push_back(measure(all, mode, size_bytes, options, call));
    }
  }
  if (all.rank().value == 0) peer::print_json("two_levels", results);
  all.barrier(kLimit).value();
}
