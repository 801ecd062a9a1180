// SPDX-License-Identifier: Apache-2.0
// Collectives that move bytes and combine none.
#include <array>

#include "group/scripts/script_builder.hpp"

namespace tendon::v0::detail {
namespace {

/// Blocks first, first+1, ... of a ring as they lie in the buffer: one run, or two.
std::array<Range, 2> runs_of(const Blocks& blocks, Member member, std::uint32_t first,
                             std::uint32_t count) {
  const std::uint32_t straight = std::min(count, member.count - first);
  const Range tail{blocks[first].begin, blocks[first + straight - 1].end};
  if (straight == count) return {tail, Range{}};
  return {tail, Range{0, blocks[count - straight - 1].end}};
}

void bruck(ScriptBuilder& script, Member member, const Blocks& blocks) {
  for (std::uint32_t distance = 1; distance < member.count; distance *= 2) {
    const std::uint32_t count = std::min(distance, member.count - distance);
    for (const Range& run : runs_of(blocks, member, member.rank, count))
      script.send(before(member, distance), {Buffer::output, run.begin}, run.end - run.begin);
    const std::uint32_t peer = after(member, distance);
    for (const Range& run : runs_of(blocks, member, peer, count))
      script.receive(peer, {Buffer::output, run.begin}, run.end - run.begin);
  }
}

}  // namespace

TreePlace binomial_tree(Member member, std::uint32_t root) {
  const std::uint32_t place = before(member, root);  // counted from the root
  TreePlace tree;
  for (std::uint32_t distance = 1; distance < member.count; distance *= 2) {
    if ((place & distance) != 0) {
      tree.parent = before(member, distance);
      break;
    }
    if (place + distance < member.count) tree.children.push_back(after(member, distance));
  }
  return tree;
}

TreePlace chain(Member member, std::uint32_t root) {
  TreePlace tree;
  if (member.rank != root) tree.parent = before(member, 1);
  if (after(member, 1) != root) tree.children.push_back(after(member, 1));
  return tree;
}

void ring_all_gather(ScriptBuilder& script, Member member, const Blocks& blocks) {
  for (std::uint32_t step = 1; step < member.count; ++step) {
    const Range block = blocks[before(member, step)];
    Onward onward{after(member, 1), Buffer::output, block};
    // The last block is received from the member after this one.
    if (step == member.count - 1) onward.unsent = {};
    script.receive(before(member, 1), {Buffer::output, block.begin}, block.end - block.begin,
                   {&onward, 1});
  }
}

void tree_broadcast(ScriptBuilder& script, const TreePlace& tree, std::uint64_t size_bytes) {
  std::vector<Onward> onwards;
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    onwards.push_back({*child, Buffer::output, {0, size_bytes}});
  if (tree.parent) return script.receive(*tree.parent, {Buffer::output, 0}, size_bytes, onwards);
  for (std::uint64_t end = 0; end < size_bytes;) {
    end += std::min(size_bytes - end, script.piece_bytes());
    for (Onward& onward : onwards) script.send_until(onward, end);
  }
}

Script broadcast_script(Member member, std::uint32_t root, std::uint64_t size_bytes, const Cut& cut,
                        BroadcastAlgorithm algorithm) {
  ScriptBuilder script(cut);
  tree_broadcast(
      script,
      algorithm == BroadcastAlgorithm::chain ? chain(member, root) : binomial_tree(member, root),
      size_bytes);
  return script.finish();
}

Script all_gather_script(Member member, std::span<const std::uint64_t> counts, const Cut& cut,
                         AllGatherAlgorithm algorithm) {
  ScriptBuilder script(cut);
  const Blocks blocks(counts);
  const Location own{Buffer::output, blocks[member.rank].begin};
  if (algorithm == AllGatherAlgorithm::bruck) {
    script.copy({Buffer::input, 0}, own, counts[member.rank]);
    bruck(script, member, blocks);
    return script.finish();
  }
  if (member.count > 1) script.send(after(member, 1), {Buffer::input, 0}, counts[member.rank]);
  script.copy({Buffer::input, 0}, own, counts[member.rank]);
  ring_all_gather(script, member, blocks);
  return script.finish();
}

Script gather_script(Member member, std::uint32_t root, std::span<const std::uint64_t> counts,
                     const Cut& cut) {
  ScriptBuilder script(cut);
  if (member.rank != root) {
    script.send_block(root, {Buffer::input, 0}, counts[member.rank]);
    return script.finish();
  }
  const Blocks blocks(counts);
  script.copy({Buffer::input, 0}, {Buffer::output, blocks[root].begin}, counts[root]);
  for (std::uint32_t distance = 1; distance < member.count; ++distance) {
    const std::uint32_t peer = after(member, distance);
    script.receive_block(peer, {Buffer::output, blocks[peer].begin}, counts[peer]);
  }
  return script.finish();
}

Script scatter_script(Member member, std::uint32_t root, std::span<const std::uint64_t> counts,
                      const Cut& cut) {
  ScriptBuilder script(cut);
  if (member.rank != root) {
    script.receive_block(root, {Buffer::output, 0}, counts[member.rank]);
    return script.finish();
  }
  const Blocks blocks(counts);
  for (std::uint32_t distance = 1; distance < member.count; ++distance) {
    const std::uint32_t peer = after(member, distance);
    script.send_block(peer, {Buffer::input, blocks[peer].begin}, counts[peer]);
  }
  script.copy({Buffer::input, blocks[root].begin}, {Buffer::output, 0}, counts[root]);
  return script.finish();
}

Script all_to_all_script(Member member, std::span<const std::uint64_t> send_counts,
                         std::span<const std::uint64_t> receive_counts, const Cut& cut) {
  ScriptBuilder script(cut);
  const Blocks send(send_counts);
  const Blocks receive(receive_counts);
  for (std::uint32_t distance = 1; distance < member.count; ++distance) {
    const std::uint32_t to = after(member, distance);
    const std::uint32_t from = before(member, distance);
    script.send_block(to, {Buffer::input, send[to].begin}, send.size(to));
    script.receive_block(from, {Buffer::output, receive[from].begin}, receive.size(from));
  }
  script.copy({Buffer::input, send[member.rank].begin},
              {Buffer::output, receive[member.rank].begin}, send.size(member.rank));
  return script.finish();
}

}  // namespace tendon::v0::detail
