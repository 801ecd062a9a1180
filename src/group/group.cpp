// SPDX-License-Identifier: Apache-2.0
#include <tendon/group/group.hpp>

#include "core/left_to_parent.hpp"
#include "group/epochs/collectives.hpp"
#include "group/epochs/group_core.hpp"
#include "group/epochs/tuning.hpp"
#include "group/messages/point_to_point.hpp"
#include "session/proofs.hpp"

namespace tendon::v0 {
namespace {

using detail::Call;
using detail::CollectiveOp;
using detail::Epoch;
using detail::GroupCore;
using detail::Hold;

Result<void> run(GroupCore& core, const Call& call, Deadline deadline) {
  struct Context {
    GroupCore& core;
    const Call& call;
  } context{core, call};
  return core.calls().run(
      [&context](Epoch& epoch, std::uint64_t sequence) {
        return detail::make_operation(context.core, epoch, sequence, context.call, Hold::borrow);
      },
      deadline);
}

Completion<void> start(GroupCore& core, const Call& call) {
  return core.calls().start([&](Epoch& epoch, std::uint64_t sequence) {
    return detail::make_operation(core, epoch, sequence, call, Hold::keep);
  });
}

}  // namespace

Group::Group(std::shared_ptr<detail::GroupCore> core) : core_(std::move(core)) {}
Group::Group(Group&&) noexcept = default;

Group& Group::operator=(Group&& other) noexcept {
  if (this != &other) {
    const Group old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Group::~Group() {
  if (core_ == nullptr) return;
  if (core_->context()->forked())
    detail::leave_to_parent(core_);
  else
    core_->leave();
}

void Group::leave() {
  if (core_ != nullptr) core_->leave();
}

Result<Group> Group::join(Context& context, const Rendezvous& rendezvous, Deadline deadline,
                          const GroupOptions& options) {
  return join(detail::ContextCore::of(context), rendezvous, deadline, options);
}

Result<Group> Group::join(const std::shared_ptr<detail::ContextCore>& context,
                          const Rendezvous& rendezvous, Deadline deadline,
                          const GroupOptions& options) {
  TENDON_CHECK(detail::refuse_secure(detail::security_of(options), "group.join", "groups"));
  auto core = GroupCore::join(context, rendezvous, options, deadline);
  if (core) return Group(*std::move(core));
  Error error = std::move(core).error();
  // A member that closes its Context now leaves a group that was never complete.
  if (error.code == ErrorCode::end_of_stream) error.code = ErrorCode::peer_lost;
  return error;
}

GroupRank Group::rank() const { return core_->epoch()->self; }
std::uint32_t Group::size() const { return core_->epoch()->size(); }
std::uint64_t Group::epoch() const { return core_->epochs_entered(); }
std::uint64_t Group::epoch_number() const { return core_->epoch()->number(); }
std::string Group::name() const { return core_->name(); }
std::uint64_t Group::last_complete_sequence() const { return core_->calls().last_complete(); }

std::vector<GroupMember> Group::members() const {
  const auto epoch = core_->epoch();
  std::vector<GroupMember> members;
  for (const GroupRank rank : epoch->ranks()) {
    GroupMember member{rank, epoch->places[rank].value, {}, {}};
    if (rank == epoch->self) {
      member.identity = core_->context()->identity();
    } else {
      member.identity = epoch->channels[rank]->link().peer();
      member.path = epoch->channels[rank]->link().path();
    }
    members.push_back(std::move(member));
  }
  return members;
}

std::string Group::describe() const {
  if (const auto here = core_->check_process("group.describe"); !here)
    return here.error().message() + "\n";
  const auto epoch = core_->epoch();
  std::string text = "group \"" + core_->name() + "\": rank " + std::to_string(epoch->self.value) +
                     " of " + std::to_string(epoch->size()) + ", epoch " +
                     std::to_string(core_->epochs_entered()) + ", listening at " +
                     core_->mesh()->address() + "\n";
  for (const GroupRank rank : epoch->ranks()) {
    text += "  " + epoch->names[rank];
    if (rank != epoch->self) text += ": " + epoch->channels[rank]->link().path().to_string();
    text += "\n";
  }
  return text + detail::describe_choices(
                    detail::Tuning::get(),
                    epoch->board != nullptr ? detail::Reach::boards : detail::Reach::links,
                    epoch->hosts);
}

GroupStatus Group::status() const {
  if (core_->context()->forked()) return {.group = core_->name()};
  GroupStatus status{.group = core_->name(), .epoch = epoch(), .size = size()};
  if (auto found = core_->calls().under_way()) {
    status.state = GroupStatus::State::in_operation;
    status.operation = to_string(found->op);
    status.sequence = found->sequence;
    status.elapsed = found->elapsed;
    status.waiting_for = std::move(found->awaited);
  } else if (const auto message = core_->waits().first()) {
    status.state = GroupStatus::State::in_operation;
    status.operation = message->what;
    status.elapsed = detail::MessageWaits::Clock::now() - message->since;
    if (message->peer) status.waiting_for = {*message->peer};
  } else if (core_->has_ended()) {
    status.state = GroupStatus::State::ended;
  }
  return status;
}

std::string to_string(const GroupStatus& status) {
  if (status.state == GroupStatus::State::idle) return "idle";
  if (status.state == GroupStatus::State::ended) return "its epoch has ended";
  std::string text = "in " + status.operation;
  if (status.sequence != 0) text += " #" + std::to_string(status.sequence);
  for (const GroupRank& rank : status.waiting_for)
    text += (&rank == status.waiting_for.data() ? ", waiting for rank " : ", rank ") +
            std::to_string(rank.value);
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(status.elapsed) / 100;
  const auto count = tenths.count();
  return text + " (" + std::to_string(count / 10) + "." + std::to_string(count % 10) + " s)";
}

// Collectives

Result<void> Group::all_reduce(const Tensors& tensors, ReduceOp op, Deadline deadline) {
  if (const auto* const one = std::get_if<const Tensor*>(&tensors.what()))
    if (auto done = core_->calls().reduce_at_once(**one, op, deadline)) return *std::move(done);
  return run(*core_, {.op = CollectiveOp::all_reduce, .reduce = op, .output = &tensors}, deadline);
}
Completion<void> Group::all_reduce_async(const Tensors& tensors, ReduceOp op) {
  return start(*core_, {.op = CollectiveOp::all_reduce, .reduce = op, .output = &tensors});
}
Result<void> Group::reduce(const Tensors& tensors, ReduceOp op, GroupRank root, Deadline deadline) {
  return run(*core_, {.op = CollectiveOp::reduce, .reduce = op, .root = root, .output = &tensors},
             deadline);
}
Completion<void> Group::reduce_async(const Tensors& tensors, ReduceOp op, GroupRank root) {
  return start(*core_,
               {.op = CollectiveOp::reduce, .reduce = op, .root = root, .output = &tensors});
}
Result<void> Group::broadcast(const Tensors& tensors, GroupRank root, Deadline deadline) {
  return run(*core_, {.op = CollectiveOp::broadcast, .root = root, .output = &tensors}, deadline);
}
Completion<void> Group::broadcast_async(const Tensors& tensors, GroupRank root) {
  return start(*core_, {.op = CollectiveOp::broadcast, .root = root, .output = &tensors});
}
Result<void> Group::all_gather(const Tensors& input, const Tensors& outputs, Deadline deadline) {
  return run(*core_, {.op = CollectiveOp::all_gather, .input = &input, .output = &outputs},
             deadline);
}
Completion<void> Group::all_gather_async(const Tensors& input, const Tensors& outputs) {
  return start(*core_, {.op = CollectiveOp::all_gather, .input = &input, .output = &outputs});
}
Result<void> Group::gather(const Tensors& input, const Tensors& outputs, GroupRank root,
                           Deadline deadline) {
  return run(*core_,
             {.op = CollectiveOp::gather, .root = root, .input = &input, .output = &outputs},
             deadline);
}
Completion<void> Group::gather_async(const Tensors& input, const Tensors& outputs, GroupRank root) {
  return start(*core_,
               {.op = CollectiveOp::gather, .root = root, .input = &input, .output = &outputs});
}
Result<void> Group::scatter(const Tensors& inputs, const Tensors& output, GroupRank root,
                            Deadline deadline) {
  return run(*core_,
             {.op = CollectiveOp::scatter, .root = root, .input = &inputs, .output = &output},
             deadline);
}
Completion<void> Group::scatter_async(const Tensors& inputs, const Tensors& output,
                                      GroupRank root) {
  return start(*core_,
               {.op = CollectiveOp::scatter, .root = root, .input = &inputs, .output = &output});
}
Result<void> Group::reduce_scatter(const Tensors& inputs, const Tensors& output, ReduceOp op,
                                   Deadline deadline) {
  return run(
      *core_,
      {.op = CollectiveOp::reduce_scatter, .reduce = op, .input = &inputs, .output = &output},
      deadline);
}
Completion<void> Group::reduce_scatter_async(const Tensors& inputs, const Tensors& output,
                                             ReduceOp op) {
  return start(
      *core_,
      {.op = CollectiveOp::reduce_scatter, .reduce = op, .input = &inputs, .output = &output});
}
Result<void> Group::all_to_all(const Tensors& inputs, const Tensors& outputs, Deadline deadline) {
  return run(*core_, {.op = CollectiveOp::all_to_all, .input = &inputs, .output = &outputs},
             deadline);
}
Completion<void> Group::all_to_all_async(const Tensors& inputs, const Tensors& outputs) {
  return start(*core_, {.op = CollectiveOp::all_to_all, .input = &inputs, .output = &outputs});
}
Result<void> Group::barrier(Deadline deadline) {
  return run(*core_, {.op = CollectiveOp::barrier}, deadline);
}
Result<void> Group::monitored_barrier(Deadline deadline) {
  return run(*core_, {.op = CollectiveOp::monitored_barrier}, deadline);
}
Completion<void> Group::barrier_async() { return start(*core_, {.op = CollectiveOp::barrier}); }

// Messages between members

Result<void> Group::send(const Tensors& tensors, To to, Deadline deadline) {
  return detail::send(*core_, tensors, to, deadline);
}
Completion<void> Group::send_async(const Tensors& tensors, To to) {
  return detail::send_async(core_, tensors, to);
}
Result<Received> Group::recv(const Tensors& tensors, From from, Deadline deadline) {
  return detail::recv(*core_, tensors, from, deadline);
}
Completion<Received> Group::recv_async(const Tensors& tensors, From from) {
  return detail::recv_async(core_, tensors, from);
}
Result<void> Group::init_remote(const TensorDict& dict, To to, Deadline deadline) {
  return detail::init_remote(*core_, dict, to, deadline);
}
Result<TensorDict> Group::from_remote_init(From from, Deadline deadline, Received* received) {
  return detail::from_remote_init(*core_, from, deadline, received);
}
Result<void> Group::give_back(const Tensors& tensors, const Received& received) {
  return detail::give_back(*core_, tensors, received);
}
Result<void> Group::give_back_init(const TensorDict& dict, const Received& received) {
  return detail::give_back_init(*core_, dict, received);
}
Result<TensorDict> Group::broadcast_init(const TensorDict& dict, GroupRank root,
                                         Deadline deadline) {
  return detail::broadcast_init(*this, *core_, dict, root, deadline);
}

// Groups and epochs

Result<Group> Group::subgroup(std::span<const GroupRank> members, Deadline deadline,
                              std::string_view name) {
  TENDON_TRY(core, core_->subgroup(members, deadline, name));
  return Group(std::move(core));
}

Result<Group> Group::split(std::span<const GlobalRank> members, Deadline deadline,
                           std::string_view name) {
  TENDON_CHECK(core_->check_process("group.split"));
  TENDON_TRY(ranks, detail::agree_on_split(*this, *core_, members, deadline));
  TENDON_TRY(core, core_->subgroup(ranks, deadline, name));
  return Group(std::move(core));
}

Result<void> Group::shrink(Deadline deadline, ShrinkOptions options) {
  return core_->enter(deadline, GroupCore::Of::those_left, options.fence, "group.shrink");
}

Result<std::uint64_t> Group::grow(Deadline deadline) {
  TENDON_CHECK(core_->enter(deadline, GroupCore::Of::those_here, Fence::none, "group.grow"));
  return core_->calls().complete_everywhere();
}

Result<std::uint64_t> Group::rebuild(Deadline deadline, ShrinkOptions options) {
  TENDON_CHECK(core_->enter(deadline, GroupCore::Of::every_place, options.fence, "group.rebuild"));
  return core_->calls().complete_everywhere();
}

void Group::abort(std::string_view reason) {
  if (!core_->context()->forked()) core_->abort(reason);
}

}  // namespace tendon::v0
