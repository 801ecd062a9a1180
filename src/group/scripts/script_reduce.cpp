// SPDX-License-Identifier: Apache-2.0
// Collectives that combine elements.
#include <bit>

#include "group/scripts/script_builder.hpp"

namespace tendon::v0::detail {
namespace {

/// The n-1 steps after which the own block is reduced. In step k (from 0) block rank-2-k arrives,
/// is combined with `input` at `to(block, k)` and is sent to the next member; the last one, the
/// own, to `last_to` if there is one.
template <typename To>
void ring_reduce_scatter(ScriptBuilder& script, Member member, const Blocks& blocks, Buffer input,
                         To to, std::optional<std::uint32_t> last_to) {
  if (member.count == 1) return;
  const std::uint32_t next = after(member, 1);
  const std::uint32_t previous = before(member, 1);
  script.send(next, {input, blocks[previous].begin}, blocks.size(previous));
  for (std::uint32_t step = 0; step + 1 < member.count; ++step) {
    const std::uint32_t block = before(member, step + 2);
    const std::uint64_t size_bytes = blocks.size(block);
    const Location result = to(block, step);
    Onward onward{next, result.buffer, {result.offset, result.offset + size_bytes}};
    if (block == member.rank) {
      onward.peer = last_to.value_or(next);
      if (!last_to) onward.unsent = {};
    }
    script.reduce(previous, Operand::left, {input, blocks[block].begin}, result, size_bytes,
                  {&onward, 1});
  }
}

/// The members of a power of two, into which the others are folded; neighbours in rank stay so.
struct Fold {
  std::uint32_t members;  ///< of the power of two
  std::uint32_t extra;    ///< the number of folded members: the odd ones of ranks below 2 extra
  std::uint32_t index;    ///< of the member, in the power of two; of its partner if it is folded
  bool has_partner;       ///< one of the pair, odd or even

  explicit Fold(Member member)
      : members(std::bit_floor(member.count)),
        extra(member.count - members),
        index(member.rank < 2 * extra ? member.rank / 2 : member.rank - extra),
        has_partner(member.rank < 2 * extra) {}
  [[nodiscard]] std::uint32_t rank_of(std::uint32_t other) const {
    return other < extra ? 2 * other : other + extra;
  }
  [[nodiscard]] bool is_folded(Member member) const { return has_partner && member.rank % 2 == 1; }
  /// The member at this distance, a power of two below `members`.
  [[nodiscard]] std::uint32_t peer(std::uint32_t distance) const {
    return rank_of(index ^ distance);
  }
  /// The members of both sides are runs of ranks; the lower one is the left operand.
  [[nodiscard]] Operand message_of_peer(std::uint32_t distance) const {
    return (index & distance) != 0 ? Operand::left : Operand::right;
  }
};

/// The steps of a folded member.
void be_folded(ScriptBuilder& script, Member member, std::uint64_t size_bytes) {
  script.send(member.rank - 1, {Buffer::output, 0}, size_bytes);
  script.receive(member.rank - 1, {Buffer::output, 0}, size_bytes);
}
/// The steps of its partner, and of a member without one: then `first` is sent.
void begin_fold(ScriptBuilder& script, Member member, const Fold& fold, std::uint64_t size_bytes,
                Onward first) {
  const Location all{Buffer::output, 0};
  if (fold.has_partner)
    script.reduce(member.rank + 1, Operand::right, all, all, size_bytes, {&first, 1});
  else
    script.send_until(first, size_bytes);
}
/// Sends the result, once it is there, to the folded partner, if there is one.
Onward end_fold(Member member, const Fold& fold, std::uint64_t size_bytes) {
  return {member.rank + 1, Buffer::output, {0, fold.has_partner ? size_bytes : 0}};
}

void recursive_doubling(ScriptBuilder& script, Member member, std::uint64_t size_bytes) {
  const Fold fold(member);
  if (fold.is_folded(member)) return be_folded(script, member, size_bytes);
  const auto exchange = [&](std::uint32_t distance) {
    return distance < fold.members ? Onward{fold.peer(distance), Buffer::output, {0, size_bytes}}
                                   : end_fold(member, fold, size_bytes);
  };
  const Location all{Buffer::output, 0};
  begin_fold(script, member, fold, size_bytes, exchange(1));
  for (std::uint32_t distance = 1; distance < fold.members; distance *= 2) {
    Onward next = exchange(2 * distance);
    script.reduce(fold.peer(distance), fold.message_of_peer(distance), all, all, size_bytes,
                  {&next, 1});
  }
}

void halving_doubling(ScriptBuilder& script, Member member, std::uint64_t size_bytes,
                      std::uint64_t grain_bytes) {
  const Fold fold(member);
  if (fold.is_folded(member)) return be_folded(script, member, size_bytes);

  // Over distance 2^i, kept[i] is halved: kept[i + 1] stays here, given[i] is the peer's.
  std::vector<Range> kept{{0, size_bytes}};
  std::vector<Range> given;
  for (std::uint32_t distance = 1; distance < fold.members; distance *= 2) {
    const Range whole = kept.back();
    const Blocks halves(2, whole.end - whole.begin, grain_bytes);
    const std::uint64_t middle = whole.begin + halves.size(0);
    const bool is_upper = (fold.index & distance) != 0;
    kept.push_back(is_upper ? Range{middle, whole.end} : Range{whole.begin, middle});
    given.push_back(is_upper ? Range{whole.begin, middle} : Range{middle, whole.end});
  }
  const std::size_t rounds = given.size();
  const auto peer = [&](std::size_t round) { return fold.peer(std::uint32_t{1} << round); };

  begin_fold(script, member, fold, size_bytes, {peer(0), Buffer::output, given[0]});
  for (std::size_t round = 0; round < rounds; ++round) {
    // After the last one, the kept range is the first that is gathered.
    Onward next = round + 1 < rounds ? Onward{peer(round + 1), Buffer::output, given[round + 1]}
                                     : Onward{peer(round), Buffer::output, kept[rounds]};
    const Range& mine = kept[round + 1];
    const Location here{Buffer::output, mine.begin};
    script.reduce(peer(round), fold.message_of_peer(std::uint32_t{1} << round), here, here,
                  mine.end - mine.begin, {&next, 1});
  }
  for (std::size_t round = rounds; round-- > 0;) {
    Onward next = round > 0 ? Onward{peer(round - 1), Buffer::output, kept[round]}
                            : end_fold(member, fold, size_bytes);
    const Range& mine = kept[round + 1];
    const Range& theirs = given[round];
    if (mine.begin < theirs.begin) script.send_until(next, mine.end);
    script.receive(peer(round), {Buffer::output, theirs.begin}, theirs.end - theirs.begin,
                   {&next, 1});
    script.send_until(next, kept[round].end);
  }
}

/// Slots for the results of the steps of a ring, used in turn: a block is received in one while the
/// block before it is sent from the other.
class Slots {
 public:
  Slots(ScriptBuilder& script, const Blocks& blocks, std::uint32_t steps, std::uint64_t grain_bytes)
      : slot_bytes_(round_up(blocks.largest(), grain_bytes)) {
    script.use_scratch(std::min<std::uint64_t>(2, steps) * slot_bytes_);
  }
  Location operator[](std::uint32_t step) const {
    return {Buffer::scratch, step % 2 * slot_bytes_};
  }

 private:
  std::uint64_t slot_bytes_;
};

void ring_reduce(ScriptBuilder& script, Member member, std::uint32_t root, std::uint64_t size_bytes,
                 std::uint64_t grain_bytes) {
  const Blocks blocks(member.count, size_bytes, grain_bytes);
  if (member.count == 1) return script.copy({Buffer::input, 0}, {Buffer::output, 0}, size_bytes);
  if (member.rank != root) {
    const Slots slots(script, blocks, member.count - 1, grain_bytes);
    ring_reduce_scatter(
        script, member, blocks, Buffer::input,
        [&](std::uint32_t, std::uint32_t step) { return slots[step]; }, root);
    return;
  }
  // The root needs no scratch: the result of each block arrives after its own part was sent.
  ring_reduce_scatter(
      script, member, blocks, Buffer::input,
      [&](std::uint32_t block, std::uint32_t) {
        return Location{Buffer::output, blocks[block].begin};
      },
      std::nullopt);
  for (std::uint32_t distance = 1; distance < member.count; ++distance) {
    const std::uint32_t peer = after(member, distance);
    script.receive(peer, {Buffer::output, blocks[peer].begin}, blocks.size(peer));
  }
}

void direct_reduce_scatter(ScriptBuilder& script, Member member, const Blocks& blocks) {
  for (std::uint32_t distance = 1; distance < member.count; ++distance) {
    const std::uint32_t peer = after(member, distance);
    script.send(peer, {Buffer::input, blocks[peer].begin}, blocks.size(peer));
  }
  Location from{Buffer::input, blocks[member.rank].begin};
  const Location to{Buffer::output, 0};
  const std::uint64_t size_bytes = blocks.size(member.rank);
  if (member.count == 1) return script.copy(from, to, size_bytes);
  for (std::uint32_t peer = member.rank; peer-- > 0; from = to)
    script.reduce(peer, Operand::left, from, to, size_bytes);
  for (std::uint32_t peer = member.rank + 1; peer < member.count; ++peer, from = to)
    script.reduce(peer, Operand::right, from, to, size_bytes);
}

}  // namespace

void tree_reduce(ScriptBuilder& script, const TreePlace& tree, std::uint64_t size_bytes,
                 TreeOperands operands) {
  // A piece on its way up is kept until it has left, while the next ones are combined.
  constexpr std::uint64_t kSlots = 4;
  const bool is_kept = operands == TreeOperands::kept;
  const Buffer input = is_kept ? Buffer::input : Buffer::output;
  if (tree.children.empty()) {
    if (tree.parent) return script.send(*tree.parent, {input, 0}, size_bytes);
    if (is_kept) script.copy({input, 0}, {Buffer::output, 0}, size_bytes);
    return;
  }
  const std::uint64_t slots_bytes = kSlots * script.piece_bytes();
  const bool in_slots = is_kept && tree.parent;
  if (in_slots) script.use_scratch(std::min(size_bytes, slots_bytes));
  // Proceeds piece by piece through all children, so that a piece is sent before the next one is
  // awaited.
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t piece = std::min(script.piece_bytes(), size_bytes - done);
    Location from{input, done};
    const Location to =
        in_slots ? Location{Buffer::scratch, done % slots_bytes} : Location{Buffer::output, done};
    for (const std::uint32_t child : tree.children) {
      script.reduce(child, Operand::right, from, to, piece);
      from = to;
    }
    if (tree.parent) script.send(*tree.parent, to, piece);
    done += piece;
  }
}

Script all_reduce_script(Member member, std::uint64_t size_bytes, const Cut& cut,
                         AllReduceAlgorithm algorithm) {
  ScriptBuilder script(cut);
  if (member.count == 1) return script.finish();
  switch (algorithm) {
    case AllReduceAlgorithm::ring: {
      const Blocks blocks(member.count, size_bytes, cut.grain_bytes);
      const std::uint32_t next = after(member, 1);
      ring_reduce_scatter(
          script, member, blocks, Buffer::output,
          [&](std::uint32_t block, std::uint32_t) {
            return Location{Buffer::output, blocks[block].begin};
          },
          next);
      ring_all_gather(script, member, blocks);
      break;
    }
    case AllReduceAlgorithm::recursive_doubling:
      recursive_doubling(script, member, size_bytes);
      break;
    case AllReduceAlgorithm::halving_doubling:
      halving_doubling(script, member, size_bytes, cut.grain_bytes);
      break;
    case AllReduceAlgorithm::two_level:  // needs the hosts: a script of its own
      break;
  }
  return script.finish();
}

Script reduce_script(Member member, std::uint32_t root, std::uint64_t size_bytes, const Cut& cut,
                     ReduceAlgorithm algorithm) {
  ScriptBuilder script(cut);
  if (algorithm == ReduceAlgorithm::ring)
    ring_reduce(script, member, root, size_bytes, cut.grain_bytes);
  else
    tree_reduce(script, binomial_tree(member, root), size_bytes, TreeOperands::kept);
  return script.finish();
}

Script reduce_scatter_script(Member member, std::span<const std::uint64_t> counts, const Cut& cut,
                             ReduceScatterAlgorithm algorithm) {
  ScriptBuilder script(cut);
  const Blocks blocks(counts);
  if (member.count == 1 || algorithm == ReduceScatterAlgorithm::direct) {
    direct_reduce_scatter(script, member, blocks);
    return script.finish();
  }
  const Slots slots(script, blocks, member.count - 2, cut.grain_bytes);
  ring_reduce_scatter(
      script, member, blocks, Buffer::input,
      [&](std::uint32_t block, std::uint32_t step) {
        return block == member.rank ? Location{Buffer::output, 0} : slots[step];
      },
      std::nullopt);
  return script.finish();
}

}  // namespace tendon::v0::detail
