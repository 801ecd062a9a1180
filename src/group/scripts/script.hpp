// SPDX-License-Identifier: Apache-2.0
// The collectives between hosts as data: which member sends which bytes to which, in which order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tendon/core/version.hpp>
#include <vector>

namespace tendon::v0::detail {

/// A buffer of the member that performs the step.
enum class Buffer : std::uint8_t { input, output, scratch };

/// Bytes of a buffer, from `offset` on.
struct Location {
  Buffer buffer = Buffer::input;
  std::uint64_t offset = 0;
  friend bool operator==(const Location&, const Location&) = default;
};

/// The message's side in a reduce; `from` is the other operand.
enum class Operand : std::uint8_t { left, right };

/// The next action of a member. The code that performs it promises that:
///   - a send is queued and never waits; the bytes are read some time before the next step that
///     writes to them (by address: input and output may be the same memory);
///   - a receive and a reduce take the next message of `peer`, which has `size_bytes`: messages
///     between two members arrive in order, one of each send;
///   - a reduce takes its message out of the way before it waits for its own sends of the bytes
///     that it overwrites. Then no script waits for itself, even where a send ends only when its
///     receiver takes it.
struct Step {
  enum class Kind : std::uint8_t {
    send,     ///< `from`, to `peer`
    receive,  ///< `to`, from `peer`
    reduce,   ///< `to` = `from` op message of `peer`, or message op `from`: see `message`
    copy,     ///< `to` = `from`; nothing where both are the same memory
  };
  Kind kind = Kind::copy;
  Operand message = Operand::right;
  std::uint32_t peer = 0;  ///< its rank, as Member::rank
  Location from = {};
  Location to = {};
  std::uint64_t size_bytes = 0;  ///< never 0, except in a barrier
};

/// One member's part in one collective.
struct Script {
  std::vector<Step> steps;
  std::uint64_t scratch_bytes = 0;
};

/// The member of a script: `rank` < `count`. Ranks here are dense: those of the present members.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t count = 1;
};

/// The members that share a host, alike on all members: messages between them depend on it.
class Hosts {
 public:
  Hosts() = default;
  /// Takes names by rank: members with the same name share a host. Hosts are counted in the order
  /// of their lowest ranks.
  explicit Hosts(std::span<const std::string> names);
  /// Distributes the members evenly over the hosts, neighbours together.
  [[nodiscard]] static Hosts shared_out(std::uint32_t members, std::uint32_t hosts);

  [[nodiscard]] std::uint32_t member_count() const {
    return static_cast<std::uint32_t>(places_.size());
  }
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(ranks_.size()); }
  /// True for several hosts, and several members on one of them.
  [[nodiscard]] bool are_levels() const { return 1 < count() && count() < member_count(); }
  [[nodiscard]] std::uint32_t host_of(std::uint32_t rank) const { return places_[rank].host; }
  /// The place of a member among those of its host, which are counted by rank.
  [[nodiscard]] std::uint32_t index_of(std::uint32_t rank) const { return places_[rank].index; }
  /// The members of a host, in their order.
  [[nodiscard]] std::span<const std::uint32_t> ranks(std::uint32_t host) const {
    return ranks_[host];
  }
  /// The number of members of the largest host.
  [[nodiscard]] std::uint32_t most_on_one() const;

 private:
  struct Place {
    std::uint32_t host;
    std::uint32_t index;
  };
  std::vector<Place> places_;
  std::vector<std::vector<std::uint32_t>> ranks_;
};

/// The places where buffers may be cut. All members must use the same.
struct Cut {
  /// A multiple of the size of an element. Cuts lie at multiples of it from the beginning of the
  /// buffer, or of a member's block where each has its own count.
  std::uint64_t grain_bytes = 64;
  /// The most bytes of a message; at least `grain_bytes`. A piece that arrived is sent on before
  /// the next one is awaited, so a long way costs a piece per member, not the whole.
  std::uint64_t piece_bytes = std::uint64_t{1} << 20;
};

// Every size and count below is in bytes and may be 0; together they are below 2^63. `counts` has
// one for each member, in the order of their blocks; the blocks follow each other without gaps.

enum class AllReduceAlgorithm : std::uint8_t {
  /// Ring reduce-scatter, then ring all-gather: each member sends 2 (n-1)/n of the buffer, the
  /// least possible (P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters
  /// of workstations", 2009). The buffer is cut in n blocks; block b is combined as
  /// (((b+1) op (b+2)) op ...) op b, ranks modulo n.
  ring,
  /// Whole buffers are exchanged over distances 1, 2, 4, ...: log2 n messages each (R. Thakur,
  /// R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
  /// 2005). Combined in the order of ranks, the bracket a binary tree.
  recursive_doubling,
  /// Halves are exchanged over distances 1, 2, 4, ... and reduced, then gathered the same way back
  /// (R. Rabenseifner, "Optimization of collective reduction operations", 2004). Order as before.
  halving_doubling,
  two_level,  ///< two_level_all_reduce_script()
};
/// `output` holds the member's operand, then the result, which has the same bits at all members. If
/// n is no power of two, recursive_doubling and halving_doubling first fold rank 2i+1 into 2i for
/// the surplus members, and send it the result in the end.
[[nodiscard]] Script all_reduce_script(Member member, std::uint64_t size_bytes, const Cut& cut,
                                       AllReduceAlgorithm algorithm);

/// The parameters of two_level beside the size.
struct TwoLevelAllReduce {
  std::uint32_t shards = 1;  ///< at least 1; more than the members of the largest host are no use
  AllReduceAlgorithm between = AllReduceAlgorithm::ring;  ///< hosts; not two_level
};
/// For each shard of the buffer a host has an owner: member floor(shard x members / shards). The
/// members of a host send each owner their part of its shards, the owners of a shard all-reduce it
/// between the hosts, and each returns its shards to its host. (With one shard: A. R. Mamidala, J.
/// Liu, D. K. Panda, "Efficient barrier and allreduce on InfiniBand clusters using multicast and
/// adaptive algorithms", 2004; with several: M. Bayatpour et al., "Scalable reduction collectives
/// with data partitioning-based multi-leader design", 2017.) With a ring each host sends 2 (H-1)/H
/// of the buffer to others, however many members it has and whatever their ranks. Operands are
/// combined by host in the order of ranks, then the hosts as `between` does with its members.
[[nodiscard]] Script two_level_all_reduce_script(std::uint32_t rank, const Hosts& hosts,
                                                 std::uint64_t size_bytes, const Cut& cut,
                                                 const TwoLevelAllReduce& how);

enum class ReduceAlgorithm : std::uint8_t {
  /// A binomial tree with the root as rank 0 (Thakur et al. 2005): combined in the order root,
  /// root+1, ..., root-1. Scratch: up to four pieces at members with children, except the root.
  tree,
  /// The ring's reduce-scatter, then the blocks are sent to the root (Thakur et al. 2005, with a
  /// ring in the place of recursive halving). Combined as in the ring of all_reduce. Scratch: two
  /// blocks, not at the root.
  ring,
  two_level_tree,   ///< two_level_reduce_script(), trees inside hosts and between them
  two_level_chain,  ///< the same with chains
};
/// The result is in the root's `output`; the `output` of others and all `input`s stay untouched.
[[nodiscard]] Script reduce_script(Member member, std::uint32_t root, std::uint64_t size_bytes,
                                   const Cut& cut, ReduceAlgorithm algorithm);

/// A tree between the roots of the hosts (the lowest rank of each; the root itself on its own host)
/// and one in each host: every host but the root's sends its result once. `algorithm` is one of the
/// two_level ones. Combined by host in the order root, root+1, ... or of ranks, then the hosts in
/// the same way. Scratch as in tree.
[[nodiscard]] Script two_level_reduce_script(std::uint32_t rank, const Hosts& hosts,
                                             std::uint32_t root, std::uint64_t size_bytes,
                                             const Cut& cut, ReduceAlgorithm algorithm);

enum class BroadcastAlgorithm : std::uint8_t {
  tree,  ///< binomial, the farthest first (Thakur et al. 2005)
  /// Root, root+1, ...: each sends the buffer once. In pieces the way's length hardly counts
  /// (J. Watts, R. van de Geijn, "A pipelined broadcast for multidimensional meshes", 1995).
  chain,
  two_level_tree,   ///< two_level_broadcast_script(), trees inside hosts and between them
  two_level_chain,  ///< the same with chains
};
/// Copies the root's `output` to that of all members.
[[nodiscard]] Script broadcast_script(Member member, std::uint32_t root, std::uint64_t size_bytes,
                                      const Cut& cut, BroadcastAlgorithm algorithm);

/// The trees of two_level_reduce_script(), downwards: the buffer reaches each host once.
[[nodiscard]] Script two_level_broadcast_script(std::uint32_t rank, const Hosts& hosts,
                                                std::uint32_t root, std::uint64_t size_bytes,
                                                const Cut& cut, BroadcastAlgorithm algorithm);

enum class AllGatherAlgorithm : std::uint8_t {
  ring,  ///< each block travels round, n-1 steps (Thakur et al. 2005)
  /// All known blocks are sent to the member 1, 2, 4, ... before: log2 n steps for any n (J. Bruck
  /// et al., "Efficient algorithms for all-to-all communications in multiport message-passing
  /// systems", 1997). Blocks are sent from their final place: a run that wraps is two messages.
  bruck,
  two_level,  ///< two_level_all_gather_script()
};
/// `input` is the member's block; `output` all of them.
[[nodiscard]] Script all_gather_script(Member member, std::span<const std::uint64_t> counts,
                                       const Cut& cut, AllGatherAlgorithm algorithm);

/// Each block is sent once to each other host: to the member there that corresponds to its owner,
/// which passes it to the others of its host. (The multi-leader scheme of K. C. Kandalla, H.
/// Subramoni, G. Santhanaraman, M. Koop, D. K. Panda, "Designing multi-leader-based allgather
/// algorithms for multi-core clusters", 2009.)
[[nodiscard]] Script two_level_all_gather_script(std::uint32_t rank, const Hosts& hosts,
                                                 std::span<const std::uint64_t> counts,
                                                 const Cut& cut);

enum class ReduceScatterAlgorithm : std::uint8_t {
  /// Each block travels round and is combined as in the ring of all_reduce (Patarasuk, Yuan 2009).
  /// Scratch: twice the largest block.
  ring,
  /// Each operand is sent straight to the owner of its block (Thakur et al. 2005, "pairwise
  /// exchange"). Combined in the order of ranks: 0 op (1 op (... op me)), then op me+1, ...
  direct,
  two_level,  ///< two_level_reduce_scatter_script()
};
/// `input` has all blocks, and is not changed; `output` becomes the member's own, reduced.
[[nodiscard]] Script reduce_scatter_script(Member member, std::span<const std::uint64_t> counts,
                                           const Cut& cut, ReduceScatterAlgorithm algorithm);

/// The reverse of two_level_all_gather_script(). A host's operands for a block of another host are
/// combined by the member that corresponds to its owner, and sent to the owner once. Combined by
/// host, then the hosts, each as direct does. Scratch: the blocks that the member combines for
/// others.
[[nodiscard]] Script two_level_reduce_scatter_script(std::uint32_t rank, const Hosts& hosts,
                                                     std::span<const std::uint64_t> counts,
                                                     const Cut& cut);

/// The members' `input`, counts[rank] each, follow each other in the root's `output`. Each block is
/// sent straight to the root, whose line is the limit in any case.
[[nodiscard]] Script gather_script(Member member, std::uint32_t root,
                                   std::span<const std::uint64_t> counts, const Cut& cut);
/// Copies blocks of the root's `input` to the members' `output`; straight, as in gather_script().
[[nodiscard]] Script scatter_script(Member member, std::uint32_t root,
                                    std::span<const std::uint64_t> counts, const Cut& cut);

/// Block r of `input` becomes this member's block in the `output` of rank r. Pairwise exchange: in
/// step i with rank+i and rank-i, so that no member is the target of all at once (Thakur et al.
/// 2005). The counts are this member's own; a sender's count is the receiver's.
[[nodiscard]] Script all_to_all_script(Member member, std::span<const std::uint64_t> send_counts,
                                       std::span<const std::uint64_t> receive_counts,
                                       const Cut& cut);
enum class BarrierAlgorithm : std::uint8_t { dissemination, two_level };
/// Dissemination: in round k an empty message to rank + 2^k and one from rank - 2^k; ceil(log2 n)
/// rounds (D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", 1988).
[[nodiscard]] Script barrier_script(Member member);
/// The same between the lowest ranks of the hosts, when all of their host have arrived by a
/// binomial tree; then down the tree (Mamidala et al. 2004).
[[nodiscard]] Script two_level_barrier_script(std::uint32_t rank, const Hosts& hosts);

}  // namespace tendon::v0::detail
