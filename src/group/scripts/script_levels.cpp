// SPDX-License-Identifier: Apache-2.0
// Collectives of members of which several share a host: few bytes between hosts, the rest inside.
#include <map>

#include "group/scripts/script_builder.hpp"

namespace tendon::v0::detail {
namespace {

/// A member among those of its host.
Member member_on_host(std::uint32_t rank, const Hosts& hosts) {
  return {hosts.index_of(rank),
          static_cast<std::uint32_t>(hosts.ranks(hosts.host_of(rank)).size())};
}

/// The places in `output` of the buffers of a script for some members.
struct Buffers {
  std::uint64_t input = 0;
  std::uint64_t output = 0;

  [[nodiscard]] Location operator()(const Location& at) const {
    return {Buffer::output, (at.buffer == Buffer::input ? input : output) + at.offset};
  }
};

/// Appends a script that needs no scratch; its member r is ranks[r] here.
void append(Script& whole, const Script& part, std::span<const std::uint32_t> ranks,
            const Buffers& buffers) {
  for (Step step : part.steps) {
    if (step.kind != Step::Kind::copy) step.peer = ranks[step.peer];
    step.from = buffers(step.from);
    step.to = buffers(step.to);
    if (step.kind == Step::Kind::copy && step.from == step.to) continue;
    whole.steps.push_back(step);
  }
}

/// The member that represents its host: the root on the root's, the lowest rank on others.
std::uint32_t leader_of(std::uint32_t host, const Hosts& hosts, std::uint32_t root) {
  return host == hosts.host_of(root) ? root : hosts.ranks(host).front();
}

using TreeShape = TreePlace (*)(Member, std::uint32_t);

/// A tree of the leaders with the trees of their hosts below them, which are first.
TreePlace two_level_tree(std::uint32_t rank, const Hosts& hosts, std::uint32_t root,
                         TreeShape tree) {
  const std::uint32_t host = hosts.host_of(rank);
  const std::uint32_t leader = leader_of(host, hosts, root);
  const auto ranks = hosts.ranks(host);
  TreePlace place = tree(member_on_host(rank, hosts), hosts.index_of(leader));
  if (place.parent) place.parent = ranks[*place.parent];
  for (std::uint32_t& child : place.children) child = ranks[child];
  if (rank != leader) return place;
  const TreePlace between = tree({host, hosts.count()}, hosts.host_of(root));
  if (between.parent) place.parent = leader_of(*between.parent, hosts, root);
  for (const std::uint32_t child : between.children)
    place.children.push_back(leader_of(child, hosts, root));
  return place;
}

/// The member of a host that represents `rank`, a member of another host. The places correspond,
/// and when the hosts have the same number of members each represents one of each.
std::uint32_t counterpart_of(std::uint32_t rank, std::uint32_t host, const Hosts& hosts) {
  const std::uint64_t theirs = hosts.ranks(hosts.host_of(rank)).size();
  const auto ranks = hosts.ranks(host);
  return ranks[hosts.index_of(rank) * ranks.size() / theirs];
}

/// The members of other hosts that `rank` represents on its own, beginning with the next host.
std::vector<std::uint32_t> charges_of(std::uint32_t rank, const Hosts& hosts) {
  std::vector<std::uint32_t> charges;
  const Member host{hosts.host_of(rank), hosts.count()};
  for (std::uint32_t distance = 1; distance < host.count; ++distance) {
    for (const std::uint32_t other : hosts.ranks(after(host, distance)))
      if (counterpart_of(other, host.rank, hosts) == rank) charges.push_back(other);
  }
  return charges;
}

/// The other members of its host, beginning with the next one.
std::vector<std::uint32_t> mates_of(std::uint32_t rank, const Hosts& hosts) {
  std::vector<std::uint32_t> mates;
  const Member member = member_on_host(rank, hosts);
  for (std::uint32_t distance = 1; distance < member.count; ++distance)
    mates.push_back(hosts.ranks(hosts.host_of(rank))[after(member, distance)]);
  return mates;
}

}  // namespace

Hosts::Hosts(std::span<const std::string> names) {
  std::map<std::string_view, std::uint32_t> hosts;
  for (std::uint32_t rank = 0; rank < names.size(); ++rank) {
    const auto host = hosts.emplace(names[rank], count()).first->second;
    if (host == count()) ranks_.emplace_back();
    places_.push_back({host, static_cast<std::uint32_t>(ranks_[host].size())});
    ranks_[host].push_back(rank);
  }
}

Hosts Hosts::shared_out(std::uint32_t members, std::uint32_t hosts) {
  std::vector<std::string> names;
  for (std::uint32_t rank = 0; rank < members; ++rank)
    names.push_back(std::to_string(std::uint64_t{rank} * hosts / members));
  return Hosts(names);
}

std::uint32_t Hosts::most_on_one() const {
  std::size_t most = 0;
  for (const auto& ranks : ranks_) most = std::max(most, ranks.size());
  return static_cast<std::uint32_t>(most);
}

Script two_level_all_reduce_script(std::uint32_t rank, const Hosts& hosts, std::uint64_t size_bytes,
                                   const Cut& cut, const TwoLevelAllReduce& how) {
  const std::uint32_t host = hosts.host_of(rank);
  const auto ranks = hosts.ranks(host);
  const Member member = member_on_host(rank, hosts);
  const Blocks shards(how.shards, size_bytes, cut.grain_bytes);
  const auto owner = [&](std::uint32_t on, std::uint32_t shard) {
    const auto all = hosts.ranks(on);
    return all[std::uint64_t{shard} * all.size() / how.shards];
  };
  // The shards of each member of this host, in one run.
  std::vector<std::uint64_t> counts(member.count, 0);
  for (std::uint32_t shard = 0; shard < how.shards; ++shard)
    counts[hosts.index_of(owner(host, shard))] += shards.size(shard);
  const std::uint64_t own_begin = Blocks(counts)[member.rank].begin;

  Script script;
  if (how.shards == 1) {
    ScriptBuilder up(cut);
    tree_reduce(up, binomial_tree(member, 0), size_bytes, TreeOperands::replaced);
    append(script, up.finish(), ranks, {});
  } else {
    append(script, reduce_scatter_script(member, counts, cut, ReduceScatterAlgorithm::direct),
           ranks, {.output = own_begin});
  }
  for (std::uint32_t shard = 0; shard < how.shards; ++shard) {
    if (owner(host, shard) != rank) continue;
    std::vector<std::uint32_t> owners;
    for (std::uint32_t on = 0; on < hosts.count(); ++on) owners.push_back(owner(on, shard));
    append(script, all_reduce_script({host, hosts.count()}, shards.size(shard), cut, how.between),
           owners, {.output = shards[shard].begin});
  }
  if (how.shards == 1) {
    append(script, broadcast_script(member, 0, size_bytes, cut, BroadcastAlgorithm::tree), ranks,
           {});
  } else {
    append(script, all_gather_script(member, counts, cut, AllGatherAlgorithm::ring), ranks,
           {.input = own_begin});
  }
  return script;
}

Script two_level_reduce_script(std::uint32_t rank, const Hosts& hosts, std::uint32_t root,
                               std::uint64_t size_bytes, const Cut& cut,
                               ReduceAlgorithm algorithm) {
  ScriptBuilder script(cut);
  const TreeShape tree = algorithm == ReduceAlgorithm::two_level_chain ? &chain : &binomial_tree;
  tree_reduce(script, two_level_tree(rank, hosts, root, tree), size_bytes, TreeOperands::kept);
  return script.finish();
}

Script two_level_broadcast_script(std::uint32_t rank, const Hosts& hosts, std::uint32_t root,
                                  std::uint64_t size_bytes, const Cut& cut,
                                  BroadcastAlgorithm algorithm) {
  ScriptBuilder script(cut);
  const TreeShape tree = algorithm == BroadcastAlgorithm::two_level_chain ? &chain : &binomial_tree;
  tree_broadcast(script, two_level_tree(rank, hosts, root, tree), size_bytes);
  return script.finish();
}

Script two_level_all_gather_script(std::uint32_t rank, const Hosts& hosts,
                                   std::span<const std::uint64_t> counts, const Cut& cut) {
  ScriptBuilder script(cut);
  const Blocks blocks(counts);
  const Location input{Buffer::input, 0};
  const auto place_of = [&](std::uint32_t block) {
    return Location{Buffer::output, blocks[block].begin};
  };
  const Member host{hosts.host_of(rank), hosts.count()};
  const std::vector<std::uint32_t> mates = mates_of(rank, hosts);
  // The long way is first.
  for (std::uint32_t distance = 1; distance < host.count; ++distance)
    script.send(counterpart_of(rank, before(host, distance), hosts), input, counts[rank]);
  for (const std::uint32_t mate : mates) script.send(mate, input, counts[rank]);
  script.copy(input, place_of(rank), counts[rank]);
  for (const std::uint32_t block : charges_of(rank, hosts)) {
    std::vector<Onward> onwards;
    onwards.reserve(mates.size());
    for (const std::uint32_t mate : mates) onwards.push_back({mate, Buffer::output, blocks[block]});
    script.receive(block, place_of(block), counts[block], onwards);
  }
  for (auto mate = mates.rbegin(); mate != mates.rend(); ++mate) {
    script.receive(*mate, place_of(*mate), counts[*mate]);
    for (const std::uint32_t block : charges_of(*mate, hosts))
      script.receive(*mate, place_of(block), counts[block]);
  }
  return script.finish();
}

Script two_level_reduce_scatter_script(std::uint32_t rank, const Hosts& hosts,
                                       std::span<const std::uint64_t> counts, const Cut& cut) {
  ScriptBuilder script(cut);
  const Blocks blocks(counts);
  const auto operand_of = [&](std::uint32_t block) {
    return Location{Buffer::input, blocks[block].begin};
  };
  const std::uint32_t host = hosts.host_of(rank);
  const auto ranks = hosts.ranks(host);
  for (const std::uint32_t mate : mates_of(rank, hosts)) {
    for (const std::uint32_t block : charges_of(mate, hosts))
      script.send(mate, operand_of(block), counts[block]);
    script.send(mate, operand_of(mate), counts[mate]);
  }
  // This host's part of a block: at `to`, or in place if no other member has a part in it.
  const auto combine = [&](std::uint32_t block, Location to) {
    Location from = operand_of(block);
    for (std::uint32_t i = hosts.index_of(rank); i-- > 0; from = to)
      script.reduce(ranks[i], Operand::left, from, to, counts[block]);
    for (std::uint32_t i = hosts.index_of(rank) + 1; i < ranks.size(); ++i, from = to)
      script.reduce(ranks[i], Operand::right, from, to, counts[block]);
    return from;
  };
  std::uint64_t scratch_bytes = 0;
  for (const std::uint32_t block : charges_of(rank, hosts)) {
    const Location from = combine(block, {Buffer::scratch, scratch_bytes});
    script.send(block, from, counts[block]);
    if (from.buffer == Buffer::scratch) scratch_bytes += round_up(counts[block], cut.grain_bytes);
  }
  script.use_scratch(scratch_bytes);

  const Location to{Buffer::output, 0};
  Location from = combine(rank, to);
  for (std::uint32_t other = host; other-- > 0; from = to)
    script.reduce(counterpart_of(rank, other, hosts), Operand::left, from, to, counts[rank]);
  for (std::uint32_t other = host + 1; other < hosts.count(); ++other, from = to)
    script.reduce(counterpart_of(rank, other, hosts), Operand::right, from, to, counts[rank]);
  if (from != to) script.copy(from, to, counts[rank]);
  return script.finish();
}

Script two_level_barrier_script(std::uint32_t rank, const Hosts& hosts) {
  ScriptBuilder script{Cut{}};
  const std::uint32_t host = hosts.host_of(rank);
  const auto ranks = hosts.ranks(host);
  const TreePlace tree = binomial_tree(member_on_host(rank, hosts), 0);
  for (const std::uint32_t child : tree.children) script.receive_signal(ranks[child]);
  if (tree.parent) {
    script.send_signal(ranks[*tree.parent]);
    script.receive_signal(ranks[*tree.parent]);
  } else {
    const Member leader{host, hosts.count()};
    for (std::uint32_t distance = 1; distance < leader.count; distance *= 2) {
      script.send_signal(hosts.ranks(after(leader, distance)).front());
      script.receive_signal(hosts.ranks(before(leader, distance)).front());
    }
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    script.send_signal(ranks[*child]);
  return script.finish();
}

}  // namespace tendon::v0::detail
