// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/group_status.hpp>
#include <tendon/group/options.hpp>
#include <tendon/group/reduce_op.hpp>
#include <tendon/group/rendezvous.hpp>
#include <tendon/group/tensors.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/session/path.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

namespace detail {
class ContextCore;
class GroupCore;
class WorkerCore;
}  // namespace detail

/// A member at this moment.
struct GroupMember {
  GroupRank rank;           ///< now
  std::uint32_t place = 0;  ///< its rank when the group was made; never changes
  PeerIdentity identity;
  std::optional<Path> path;  ///< how bytes reach it; nullopt: this process itself
};

/// The receiver and the tag of a message between members.
struct To {
  GroupRank rank;
  std::uint32_t tag = 0;
};
struct From {
  std::optional<GroupRank> rank = {};  ///< nullopt: any member
  std::optional<std::uint32_t> tag = {};
};
/// The sender and the tag of a received message.
struct Received {
  GroupRank rank;
  std::uint32_t tag = 0;
  std::uint32_t place = 0;   ///< of the sender: its rank when the group was made
  std::uint64_t number = 0;  ///< in order of arrival at this member, from 1
};

/// Processes that compute together: collectives, messages by rank, and recovery when one dies.
///
/// Example:
///   Group group = Group::join(context, Rendezvous::from_environment(), 60s).value();
///   Tensor gradient = Tensor::zeros(DType::f32, {1'000'000}).value();
///   Result<void> reduced = group.all_reduce(gradient, ReduceOp::sum, 30s);
///   if (!reduced && reduced.error().code == ErrorCode::peer_lost) {
///     std::cerr << reduced.error().message() << '\n';  // names the dead member
///     group.shrink(30s).value();  // the others continue; `gradient` has to be computed again
///   } else {
///     reduced.value();  // throws after every other failure
///     Completion<void> later = group.all_reduce_async(gradient, ReduceOp::avg);
///     later.wait(30s).value();
///   }
///
/// Every member calls the same collectives in the same order, with the same dtypes and sizes; a
/// difference is found and named (`mismatch`). Results are equal on all members, bit for bit. When
/// a member dies, every survivor gets `peer_lost` with its name, from this call and each later one.
/// That ends when shrink() has made the next epoch without it, or rebuild() with another process in
/// its place. After other failures later calls return `group_aborted`. A collective that times out
/// ends the epoch too. A deadline of zero times out unless all members are already in the
/// collective.
///
/// *Blocks* of a call are one tensor, cut in equal parts along its elements, or a list with one
/// tensor (or dict) for each rank, of any sizes. Sizes must agree between members as MPI's do.
///
/// Owns:    links, shared memory for its collectives. Its destructor tells the others that this
///          member has left, and drops a sent message if its receiver has not taken an earlier one.
/// Threads: safe everywhere. Collectives run in the order of the calls. No other operation may use
///          the tensors of one that has not ended: they may be copied or scaled during the call.
/// Errors:  invalid_argument, mismatch, peer_lost, group_aborted, no_quorum, timeout (naming the
///          members that are missing), overlapping (results), read_only, unsupported_dtype,
///          unsupported_device. The tensors' contents are unspecified after timeout, mismatch,
///          peer_lost, cancelled or group_aborted.
/// Blocks:  until the deadline.
/// Cost:    docs/collectives.md. Tensors without gaps are used where they lie, others copied first.
class TENDON_API Group {
 public:
  /// Meets the others at the rendezvous and makes a link to each. Returns when all are there.
  /// Groups may follow each other at one rendezvous: each is made when the one before is dropped.
  [[nodiscard]] static Result<Group> join(Context& context, const Rendezvous& rendezvous,
                                          Deadline deadline, const GroupOptions& options = {});
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  [[nodiscard]] GroupRank rank() const;
  /// Members of this epoch.
  [[nodiscard]] std::uint32_t size() const;
  /// 1 after join(), one more after each shrink(), grow() and rebuild().
  [[nodiscard]] std::uint64_t epoch() const;
  /// A number of this epoch that is the same on all of its members, later ones included. No other
  /// epoch of this group has it. Later epochs have higher numbers; some numbers are left out.
  [[nodiscard]] std::uint64_t epoch_number() const;
  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::vector<GroupMember> members() const;
  /// Describes for people the members, paths, and the algorithm of each operation and size.
  [[nodiscard]] std::string describe() const;
  /// The status of the group. Any thread may call it, even during a collective; it returns within
  /// about 10 ms.
  [[nodiscard]] GroupStatus status() const;
  /// The number of the last collective that this member has completed; numbers continue over
  /// epochs.
  [[nodiscard]] std::uint64_t last_complete_sequence() const;

  // Collectives. `tensors` is changed in place.
  [[nodiscard]] Result<void> all_reduce(const Tensors& tensors, ReduceOp op, Deadline deadline);
  /// The result is on `root` alone; the tensors of the others are read.
  [[nodiscard]] Result<void> reduce(const Tensors& tensors, ReduceOp op, GroupRank root,
                                    Deadline deadline);
  [[nodiscard]] Result<void> broadcast(const Tensors& tensors, GroupRank root, Deadline deadline);
  /// Puts each member's input into its block of `outputs`.
  [[nodiscard]] Result<void> all_gather(const Tensors& input, const Tensors& outputs,
                                        Deadline deadline);
  /// `outputs` are blocks on `root`; other members ignore them.
  [[nodiscard]] Result<void> gather(const Tensors& input, const Tensors& outputs, GroupRank root,
                                    Deadline deadline);
  /// `inputs` are blocks on `root`; other members ignore them.
  [[nodiscard]] Result<void> scatter(const Tensors& inputs, const Tensors& output, GroupRank root,
                                     Deadline deadline);
  /// `inputs` are blocks; `output` gets the combination of all members' blocks of this rank.
  [[nodiscard]] Result<void> reduce_scatter(const Tensors& inputs, const Tensors& output,
                                            ReduceOp op, Deadline deadline);
  /// Block i of `inputs` becomes block rank() of member i's `outputs`. Sizes may all differ.
  [[nodiscard]] Result<void> all_to_all(const Tensors& inputs, const Tensors& outputs,
                                        Deadline deadline);
  [[nodiscard]] Result<void> barrier(Deadline deadline);
  /// A barrier whose `timeout` lists all members that did not arrive, on every one that did.
  /// Between hosts it says more than barrier() and takes more messages.
  [[nodiscard]] Result<void> monitored_barrier(Deadline deadline);

  // Messages between members. Those of one pair and tag arrive in order, and receives take them in
  // the order of their calls. The receiver's tensors have the sender's dtypes and sizes
  // (`mismatch`).
  [[nodiscard]] Result<void> send(const Tensors& tensors, To to, Deadline deadline);
  [[nodiscard]] Result<Received> recv(const Tensors& tensors, From from, Deadline deadline);
  /// Sends a whole TensorDict to a member that knows nothing of it: schema, values and tensors.
  [[nodiscard]] Result<void> init_remote(const TensorDict& dict, To to, Deadline deadline);
  [[nodiscard]] Result<TensorDict> from_remote_init(From from, Deadline deadline,
                                                    Received* received = nullptr);
  /// Sends the TensorDict of `root` to all members: `root` returns its own, the others the received
  /// one.
  [[nodiscard]] Result<TensorDict> broadcast_init(const TensorDict& dict, GroupRank root,
                                                  Deadline deadline);
  /// Puts a copy of a received message back, as it lies in `tensors`: see Pipe::give_back().
  [[nodiscard]] Result<void> give_back(const Tensors& tensors, const Received& received);
  /// The same for a TensorDict of from_remote_init().
  [[nodiscard]] Result<void> give_back_init(const TensorDict& dict, const Received& received);

  // The same calls without a wait: the Completion has the result of the call above. Collectives of
  // one group run one after the other, in the order of the calls of both kinds.
  Completion<void> all_reduce_async(const Tensors& tensors, ReduceOp op);
  Completion<void> reduce_async(const Tensors& tensors, ReduceOp op, GroupRank root);
  Completion<void> broadcast_async(const Tensors& tensors, GroupRank root);
  Completion<void> all_gather_async(const Tensors& input, const Tensors& outputs);
  Completion<void> gather_async(const Tensors& input, const Tensors& outputs, GroupRank root);
  Completion<void> scatter_async(const Tensors& inputs, const Tensors& output, GroupRank root);
  Completion<void> reduce_scatter_async(const Tensors& inputs, const Tensors& output, ReduceOp op);
  Completion<void> all_to_all_async(const Tensors& inputs, const Tensors& outputs);
  Completion<void> barrier_async();
  Completion<void> send_async(const Tensors& tensors, To to);
  Completion<Received> recv_async(const Tensors& tensors, From from);

  // Groups and epochs
  /// Makes a group of some members, in this order. Exactly these call it, each with the same list.
  [[nodiscard]] Result<Group> subgroup(std::span<const GroupRank> members, Deadline deadline,
                                       std::string_view name = {});
  /// Splits the group. Every member calls it, with the list of the group that it will be in
  /// (ParallelLayout makes such lists). A GlobalRank is a place in the group that join() made, in a
  /// subgroup as well. `mismatch` when lists contradict.
  [[nodiscard]] Result<Group> split(std::span<const GlobalRank> members, Deadline deadline,
                                    std::string_view name = {});
  /// Makes the next epoch after a failure, of all remaining members; each of them calls it. Ranks
  /// close up; places stay. shrink(), grow() and rebuild() may be called again after `timeout`.
  [[nodiscard]] Result<void> shrink(Deadline deadline, ShrinkOptions options = {});
  /// Makes the next epoch, of all remaining members and all that have arrived meanwhile. A process
  /// that calls join() with the rank and the rendezvous of a lost member takes its place; its
  /// join() returns when the members call this. Returns the number of the last collective that
  /// every member had completed, from where to continue: last_complete_sequence() of a new member.
  [[nodiscard]] Result<std::uint64_t> grow(Deadline deadline);
  /// As grow(), but waits until there is a process in every place, that of rank 0 included. A group
  /// made by split() or subgroup() takes no new processes: if it lost a member, the call returns
  /// `invalid_argument` at once. After a death call rebuild() on the group that was joined, then
  /// make the others again: all members the same groups in the same order.
  [[nodiscard]] Result<std::uint64_t> rebuild(Deadline deadline, ShrinkOptions options = {});
  /// Ends every pending operation of this epoch, on all members, with `reason`.
  void abort(std::string_view reason);

 private:
  friend class detail::GroupCore;
  friend class detail::WorkerCore;
  static Result<Group> join(const std::shared_ptr<detail::ContextCore>& context,
                            const Rendezvous& rendezvous, Deadline deadline,
                            const GroupOptions& options);
  /// Ends this member's part, as the destructor does. Other handles to the group no longer work.
  void leave();
  explicit Group(std::shared_ptr<detail::GroupCore> core);
  std::shared_ptr<detail::GroupCore> core_;
};

}  // namespace v0
}  // namespace tendon
