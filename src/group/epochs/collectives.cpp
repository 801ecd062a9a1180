// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/collectives.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string_view>
#include <tendon/observe/log.hpp>

#include "core/float_mode.hpp"
#include "group/boards/rounds.hpp"
#include "group/epochs/tuning.hpp"
#include "group/operands/collective.hpp"
#include "group/reduce/reduce.hpp"

namespace tendon::v0::detail {
namespace {

constexpr Cut kCut;

/// The tensors of a call, as its operation takes them.
struct Operands {
  Flat input;
  Flat output;
  std::vector<Flat> inputs;  // blocks
  std::vector<Flat> outputs;
};

// Members write their outputs while they still read their inputs. A ring leaves this member's own
// block where it is, so the same block in both is no conflict.
Result<void> keep_inputs(const Epoch& epoch, const Call& call, Operands& operands) {
  const bool is_list = collective(call.op).blocks_in;
  const std::span<Flat> inputs =
      is_list ? std::span(operands.inputs) : std::span(&operands.input, 1);
  const std::span<const Flat> outputs =
      collective(call.op).blocks_out ? std::span(operands.outputs) : std::span(&operands.output, 1);
  if (!may_overlap(inputs, outputs)) return {};
  std::vector<Flat*> in_the_way;
  for (Flat& input : inputs) {
    const bool is_own = !is_list || &input == &inputs[epoch.self.value];
    const Flat& output = outputs[outputs.size() == 1 ? 0 : epoch.self.value];
    const bool is_in_place = call.op != CollectiveOp::all_to_all && is_own && input.is_same(output);
    if (!is_in_place) in_the_way.push_back(&input);
  }
  return copy_overlapping(in_the_way, outputs);
}

Result<Operands> read_operands(const Epoch& epoch, const Call& call, Hold hold,
                               std::string_view where) {
  Operands operands;
  const std::uint32_t members = epoch.size();
  const bool is_root = epoch.self == call.root;
  if (call.input != nullptr && (call.op != CollectiveOp::scatter || is_root)) {
    if (collective(call.op).blocks_in) {
      TENDON_TRY(blocks, Flat::make_blocks(*call.input, members, Use::read, hold, where));
      operands.inputs = std::move(blocks);
    } else {
      TENDON_TRY(flat, Flat::make(*call.input, Use::read, hold, where));
      operands.input = std::move(flat);
    }
  }
  if (call.output != nullptr && (call.op != CollectiveOp::gather || is_root)) {
    const bool is_read_only = !is_root && call.op == CollectiveOp::reduce;
    const bool is_source = is_root && call.op == CollectiveOp::broadcast;
    const Use use = is_read_only || is_source ? Use::read : Use::write;
    if (collective(call.op).blocks_out) {
      TENDON_TRY(blocks, Flat::make_blocks(*call.output, members, use, hold, where));
      operands.outputs = std::move(blocks);
    } else {
      TENDON_TRY(flat, Flat::make(*call.output, use, hold, where));
      operands.output = std::move(flat);
    }
  }
  TENDON_CHECK(keep_inputs(epoch, call, operands));
  return operands;
}

// Checks that this block of the output is like the input that it will hold.
Result<void> check_alike(const Flat& output, const Flat& input, std::string_view what,
                         std::string_view where) {
  if (output.size_bytes() == input.size_bytes() && output.layout() == input.layout()) return {};
  std::string detail = std::string(what) + " has " + std::to_string(output.tensor_bytes()) +
                       " bytes, needed are " + std::to_string(input.tensor_bytes());
  if (output.tensor_bytes() == input.tensor_bytes())
    detail += ": of the same size, but of other dtypes or in tensors of other sizes";
  return Error{ErrorCode::invalid_argument, where, std::move(detail)};
}

// The name of the first tensor of this dtype: "leaf x.y", "tensor 3".
std::string first_of(const Tensors& tensors, DType dtype) {
  if (const auto* const dict = std::get_if<const TensorDict*>(&tensors.what())) {
    for (std::size_t i = 0; i < (*dict)->leaf_count(); ++i)
      if ((*dict)->leaf(i).dtype() == dtype) return "leaf " + (*dict)->leaf_path(i) + ": ";
  }
  if (const auto* const several = std::get_if<std::span<const Tensor>>(&tensors.what())) {
    for (std::size_t i = 0; i < several->size(); ++i)
      if ((*several)[i].dtype() == dtype) return "tensor " + std::to_string(i) + ": ";
  }
  return {};
}

Result<void> check_operands(const Epoch& epoch, const Call& call, const Operands& operands,
                            std::string_view where) {
  if (collective(call.op).has_root && call.root.value >= epoch.size()) {
    return Error{ErrorCode::invalid_argument, where,
                 "root " + std::to_string(call.root.value) + " of a group of " +
                     std::to_string(epoch.size()) + ": ranks are 0 to " +
                     std::to_string(epoch.size() - 1)};
  }
  if (call.reduce) {
    for (const Flat::Run& run : operands.output.runs()) {
      auto legal = check_reduce(*call.reduce, run.dtype, where);
      if (legal) continue;
      Error error = std::move(legal).error();
      error.detail.insert(0, first_of(*call.output, run.dtype));
      return error;
    }
  }
  const std::uint32_t mine = epoch.self.value;
  const auto same = [&](const Flat& output, const Flat& input, std::string_view what) {
    return check_alike(output, input, what, where);
  };
  switch (call.op) {
    case CollectiveOp::all_gather:
      return same(operands.outputs[mine], operands.input, "this member's block of the output");
    case CollectiveOp::gather:
      if (epoch.self != call.root) return {};
      return same(operands.outputs[mine], operands.input, "the root's block of the output");
    case CollectiveOp::scatter:
      if (epoch.self != call.root) return {};
      return same(operands.output, operands.inputs[mine], "the root's output");
    case CollectiveOp::all_to_all:
      return same(operands.outputs[mine], operands.inputs[mine],
                  "this member's block of the output");
    case CollectiveOp::reduce_scatter:
      return same(operands.output, operands.inputs[mine], "the output");
    case CollectiveOp::barrier:
    case CollectiveOp::monitored_barrier:
    case CollectiveOp::broadcast:
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
      return {};
  }
  return {};
}

// The dtype of all blocks that have elements; nullopt when there are several.
std::optional<DType> common_dtype(const std::vector<Flat>& blocks) {
  std::optional<DType> common;
  for (const Flat& block : blocks) {
    if (block.runs().empty()) continue;
    const auto dtype = block.dtype();
    if (!dtype || (common && *common != *dtype)) return {};
    common = dtype;
  }
  return common;
}

// A hash over all blocks, for comparison between members whose blocks are alike.
std::uint32_t layout_of(const std::vector<Flat>& blocks) {
  std::uint32_t hash = 0;
  for (const Flat& block : blocks) hash = hash * 16777619u ^ block.layout();
  return hash;
}

Fingerprint fingerprint_for(const Epoch& epoch, const Call& call, const Operands& operands,
                            std::uint64_t sequence) {
  Fingerprint fingerprint;
  fingerprint.op = call.op;
  fingerprint.history = epoch.history.mark();
  fingerprint.sequence = static_cast<std::uint32_t>(sequence);
  fingerprint.root = call.root.value;
  if (call.reduce) fingerprint.reduce = static_cast<std::uint8_t>(call.reduce->kind());
  if (collective(call.op).is_alike) {
    fingerprint.size_bytes = operands.output.tensor_bytes();
    fingerprint.shape_hash = operands.output.shape_hash();
  }
  if (call.op == CollectiveOp::reduce_scatter) {
    for (const Flat& block : operands.inputs) fingerprint.size_bytes += block.tensor_bytes();
    fingerprint.shape_hash = layout_of(operands.inputs);
  }
  if (call.op == CollectiveOp::all_gather) {
    for (const Flat& block : operands.outputs) fingerprint.size_bytes += block.tensor_bytes();
    fingerprint.shape_hash = layout_of(operands.outputs);
  }
  std::optional<DType> dtype;
  if (call.op == CollectiveOp::all_gather)
    dtype = common_dtype(operands.outputs);
  else if (call.op == CollectiveOp::reduce_scatter)
    dtype = common_dtype(operands.inputs);
  else if (collective(call.op).is_alike)
    dtype = operands.output.dtype();
  if (dtype) fingerprint.dtype = static_cast<std::uint8_t>(*dtype);
  if (call.reduce) mix_factor(fingerprint, *call.reduce);
  return fingerprint;
}

// The tensors that the other members' are compared with.
FlatSummary take_summary(const Epoch& epoch, const Call& call, Operands& operands) {
  const bool is_root = epoch.self == call.root;
  const auto all_of = [](std::vector<Flat>& blocks) {
    FlatSummary all;
    for (Flat& block : blocks) all.add(block.take_summary());
    return all;
  };
  switch (call.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::monitored_barrier:
      return {};
    case CollectiveOp::broadcast:
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
      return operands.output.take_summary();
    case CollectiveOp::all_gather:
      return all_of(operands.outputs);
    case CollectiveOp::gather:
      return is_root ? all_of(operands.outputs) : operands.input.take_summary();
    case CollectiveOp::scatter:
      return is_root ? all_of(operands.inputs) : operands.output.take_summary();
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all:
      return all_of(operands.inputs);
  }
  return {};
}

// On one host

/// How an operation shows its tensors.
struct Showing {
  PoolPlace place;  // where they can be read, if that is planned
  Staging::Plan plan;
};
Showing plan_showing(GroupCore& core, const Epoch& epoch, const Call& call,
                     const Operands& operands, const Fingerprint& fingerprint) {
  const Tuning& tuning = Tuning::get();
  Staging& staging = epoch.board->staging();
  const std::uint64_t size = operands.output.size_bytes();
  Showing showing;
  const bool may_pull = call.op == CollectiveOp::all_reduce &&
                        choose_board_all_reduce(tuning, epoch.size(), size) == BoardAllReduce::pull;
  if (may_pull) showing.place = core.pool_place(epoch, operands.output);
  if (showing.place.segment_id == 0 || tuning.board_all_reduce) {
    showing.plan = staging.plan(fingerprint.op, fingerprint.size_bytes);
    showing.plan.pulls = showing.place.segment_id != 0;
    return showing;
  }
  showing.plan = staging.plan_pooled(fingerprint.size_bytes, epoch.size());
  if (!showing.plan.pulls) showing.place = {};
  return showing;
}

std::unique_ptr<Rounds> rounds_for(const std::shared_ptr<Epoch>& epoch, const Call& call,
                                   Operands operands, const PoolPlace& place) {
  const std::uint32_t self = epoch->self.value;
  const std::uint32_t root = call.root.value;
  switch (call.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::monitored_barrier:  // on a board everybody sees everybody
      return barrier_rounds();
    case CollectiveOp::broadcast:
      return broadcast_rounds(std::move(operands.output), root, self);
    case CollectiveOp::all_reduce: {
      const auto way =
          choose_board_all_reduce(Tuning::get(), epoch->size(), operands.output.size_bytes());
      PoolReader reader;
      if (way == BoardAllReduce::pull) reader = GroupCore::pool_reader(epoch);
      return all_reduce_rounds(std::move(operands.output), *call.reduce, epoch->size(), way, place,
                               std::move(reader));
    }
    case CollectiveOp::reduce:
      return reduce_rounds(std::move(operands.output), *call.reduce, root, self);
    case CollectiveOp::all_gather:
      return all_gather_rounds(std::move(operands.input), std::move(operands.outputs), self);
    case CollectiveOp::gather:
      return gather_rounds(std::move(operands.input), std::move(operands.outputs), root, self);
    case CollectiveOp::scatter:
      return scatter_rounds(std::move(operands.inputs), std::move(operands.output), root, self);
    case CollectiveOp::reduce_scatter:
      return reduce_scatter_rounds(std::move(operands.inputs), std::move(operands.output),
                                   *call.reduce, self);
    case CollectiveOp::all_to_all:
      return all_to_all_rounds(std::move(operands.inputs), std::move(operands.outputs), self);
  }
  return nullptr;
}

// Between hosts

std::vector<std::uint64_t> sizes_of(const std::vector<Flat>& blocks) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(blocks.size());
  for (const Flat& block : blocks) sizes.push_back(block.size_bytes());
  return sizes;
}

Member member_of(const Epoch& epoch) { return {epoch.self.value, epoch.size()}; }
std::uint64_t sum_of(std::span<const std::uint64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

// The script that the table chooses.
Script all_reduce_steps(const Epoch& epoch, std::uint64_t size) {
  const auto algorithm = choose_all_reduce(Tuning::get(), epoch.hosts, size);
  if (algorithm != AllReduceAlgorithm::two_level)
    return all_reduce_script(member_of(epoch), size, kCut, algorithm);
  return two_level_all_reduce_script(epoch.self.value, epoch.hosts, size, kCut,
                                     choose_two_level_all_reduce(Tuning::get(), epoch.hosts, size));
}
Script reduce_steps(const Epoch& epoch, GroupRank root, std::uint64_t size) {
  const auto algorithm = choose_reduce(Tuning::get(), epoch.hosts, size);
  if (algorithm == ReduceAlgorithm::tree || algorithm == ReduceAlgorithm::ring)
    return reduce_script(member_of(epoch), root.value, size, kCut, algorithm);
  return two_level_reduce_script(epoch.self.value, epoch.hosts, root.value, size, kCut, algorithm);
}
Script broadcast_steps(const Epoch& epoch, GroupRank root, std::uint64_t size) {
  const auto algorithm = choose_broadcast(Tuning::get(), epoch.hosts, size);
  if (algorithm == BroadcastAlgorithm::tree || algorithm == BroadcastAlgorithm::chain)
    return broadcast_script(member_of(epoch), root.value, size, kCut, algorithm);
  return two_level_broadcast_script(epoch.self.value, epoch.hosts, root.value, size, kCut,
                                    algorithm);
}
Script all_gather_steps(const Epoch& epoch, std::span<const std::uint64_t> counts) {
  const auto algorithm = choose_all_gather(Tuning::get(), epoch.hosts, sum_of(counts));
  if (algorithm != AllGatherAlgorithm::two_level)
    return all_gather_script(member_of(epoch), counts, kCut, algorithm);
  return two_level_all_gather_script(epoch.self.value, epoch.hosts, counts, kCut);
}
Script reduce_scatter_steps(const Epoch& epoch, std::span<const std::uint64_t> counts) {
  const auto algorithm = choose_reduce_scatter(Tuning::get(), epoch.hosts, sum_of(counts));
  if (algorithm != ReduceScatterAlgorithm::two_level)
    return reduce_scatter_script(member_of(epoch), counts, kCut, algorithm);
  return two_level_reduce_scatter_script(epoch.self.value, epoch.hosts, counts, kCut);
}

// Logs once that a forced algorithm cannot be used.
void check_forced(const Hosts& hosts) {
  if (hosts.are_levels()) return;
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const std::string operations = forced_two_level(Tuning::get());
  if (operations.empty()) return;
  log(LogLevel::warn, "group.tuning",
      "TENDON_COLLECTIVES forces two levels for " + operations +
          ", which need several hosts and several members on one of them: chosen by size");
}

/// The data of reductions over links: for each dtype one tensor without gaps, and its origin.
struct Packed {
  DType dtype;
  Tensor memory;
  std::vector<Flat::Run> runs;  // its origin, in order

  void unpack() const {
    std::uint64_t at = 0;
    for (const Flat::Run& run : runs) {
      std::memcpy(run.data, memory.data() + at, run.size_bytes);
      at += run.size_bytes;
    }
  }
};

// A single run is used in place, unless `copied` asks for one that may be changed.
enum class Copied : std::uint8_t { if_needed, always };
Result<Packed> pack(DType dtype, std::span<const Flat::Run> runs, Copied copied) {
  Packed packed{dtype, {}, {}};
  std::uint64_t size = 0;
  for (const Flat::Run& run : runs) {
    if (run.dtype != dtype) continue;
    packed.runs.push_back(run);
    size += run.size_bytes;
  }
  if (packed.runs.size() == 1 && copied == Copied::if_needed) {
    const Flat::Run run = packed.runs.front();
    packed.runs.clear();
    const auto count = static_cast<std::int64_t>(size / item_size_bytes(dtype));
    TENDON_TRY(view, Tensor::view(Storage(nullptr, run.data, size, Access::read_write), 0, dtype,
                                  Shape({count})));
    packed.memory = std::move(view);
    return packed;
  }
  TENDON_TRY(memory, Tensor::empty(
                         dtype, Shape({static_cast<std::int64_t>(size / item_size_bytes(dtype))})));
  packed.memory = std::move(memory);
  std::uint64_t at = 0;
  for (const Flat::Run& run : packed.runs) {
    std::memcpy(const_cast<std::byte*>(packed.memory.data()) + at, run.data, run.size_bytes);
    at += run.size_bytes;
  }
  return packed;
}

Result<Flat> flat_of(const Tensor& tensor) {
  return Flat::make(tensor, Use::write, Hold::keep, "group.collective");
}

// avg and premul_sum travel as sums: scaled at the end, or at the beginning.
ReduceOp hop_op(const ReduceOp& op) {
  return op.kind() == ReduceKind::avg || op.kind() == ReduceKind::premul_sum ? ReduceOp::sum : op;
}
void scale(const Tensor& tensor, double factor) {
  auto* const data = const_cast<std::byte*>(tensor.data());
  const std::byte* const input = data;
  reduce(ReduceOp::premul_sum(factor), tensor.dtype(), {data, tensor.size_bytes()},
         std::span(&input, 1));
}

// The same number at each member, whatever mode its program computes in. Volatile, because a
// compiler may move arithmetic out of the mode, but no access to these.
double part_of(std::uint32_t count) {
  const DefaultFloatMode mode;
  const volatile double divisor = count;
  const volatile double part = 1.0 / divisor;
  return part;
}

std::vector<DType> dtypes_of(std::span<const Flat::Run> runs) {
  std::vector<DType> dtypes;
  for (const Flat::Run& run : runs)
    if (std::find(dtypes.begin(), dtypes.end(), run.dtype) == dtypes.end())
      dtypes.push_back(run.dtype);
  return dtypes;
}

Error no_script(CollectiveOp op) {
  return {ErrorCode::internal, "group.collective", to_string(op) + " has no script"};
}

Result<std::shared_ptr<Operation>> reduce_over_links(GroupCore& core, Epoch& epoch,
                                                     std::uint64_t sequence, const Call& call,
                                                     Operands operands,
                                                     const Fingerprint& fingerprint) {
  const Member member = member_of(epoch);
  const ReduceOp& op = *call.reduce;
  std::vector<ScriptJob> jobs;
  auto packed = std::make_shared<std::vector<Packed>>();
  const bool is_scatter = call.op == CollectiveOp::reduce_scatter;
  // From all members' blocks, so in the same order everywhere, whatever this member's own contains.
  std::vector<Flat::Run> all;
  if (!is_scatter) all.assign(operands.output.runs().begin(), operands.output.runs().end());
  for (const Flat& block : operands.inputs)
    all.insert(all.end(), block.runs().begin(), block.runs().end());
  for (const DType dtype : dtypes_of(all)) {
    ScriptJob job;
    job.op = hop_op(op);
    job.dtype = dtype;
    const bool scaled_first = op.kind() == ReduceKind::premul_sum;
    const bool in_place = call.op == CollectiveOp::all_reduce || !scaled_first;
    TENDON_TRY(result,
               pack(dtype, operands.output.runs(), in_place ? Copied::if_needed : Copied::always));
    if (scaled_first && !is_scatter) scale(result.memory, op.factor());
    const std::uint64_t size = result.memory.size_bytes();
    TENDON_TRY(output, flat_of(result.memory));
    if (call.op == CollectiveOp::all_reduce) {
      job.script = all_reduce_steps(epoch, size);
    } else if (call.op == CollectiveOp::reduce) {
      TENDON_TRY(input, flat_of(result.memory));
      job.input.push_back(std::move(input));
      job.script = reduce_steps(epoch, call.root, size);
    } else if (call.op == CollectiveOp::reduce_scatter) {
      std::vector<std::uint64_t> counts;
      for (const Flat& block : operands.inputs) {
        TENDON_TRY(part,
                   pack(dtype, block.runs(), scaled_first ? Copied::always : Copied::if_needed));
        if (scaled_first) scale(part.memory, op.factor());
        counts.push_back(part.memory.size_bytes());
        TENDON_TRY(input, flat_of(part.memory));
        job.input.push_back(std::move(input));
      }
      job.script = reduce_scatter_steps(epoch, counts);
    } else {
      return no_script(call.op);
    }
    job.output.push_back(std::move(output));
    jobs.push_back(std::move(job));
    packed->push_back(std::move(result));
  }
  const bool takes = call.op != CollectiveOp::reduce || epoch.self == call.root;
  auto output = std::make_shared<Flat>(std::move(operands.output));
  // The inputs that are read in place, or were packed.
  auto inputs = std::make_shared<std::vector<Flat>>(std::move(operands.inputs));
  auto finish = [packed, inputs, output, takes, op, count = member.count] {
    if (!takes) return;
    for (const Packed& each : *packed) {
      if (op.kind() == ReduceKind::avg) scale(each.memory, part_of(count));
      each.unpack();
    }
    output->finish();
  };
  return make_script_operation(fingerprint, sequence, *core.mesh(), core.id(), std::move(jobs),
                               std::move(finish));
}

Result<std::shared_ptr<Operation>> move_over_links(GroupCore& core, Epoch& epoch,
                                                   std::uint64_t sequence, const Call& call,
                                                   Operands operands,
                                                   const Fingerprint& fingerprint) {
  const Member member = member_of(epoch);
  const bool is_root = epoch.self == call.root;
  ScriptJob job;
  const auto counts_with = [&](std::uint64_t mine) {
    std::vector<std::uint64_t> counts(member.count, 0);
    counts[member.rank] = mine;
    return counts;
  };
  switch (call.op) {
    case CollectiveOp::barrier:
      job.script = choose_barrier(Tuning::get(), epoch.hosts) == BarrierAlgorithm::two_level
                       ? two_level_barrier_script(epoch.self.value, epoch.hosts)
                       : barrier_script(member);
      break;
    case CollectiveOp::monitored_barrier:
      // Each member sends to every other, so that each knows by itself which ones are missing.
      for (std::uint32_t i = 1; i < member.count; ++i) {
        job.script.steps.push_back(
            {.kind = Step::Kind::send, .peer = (member.rank + i) % member.count});
      }
      for (std::uint32_t i = 1; i < member.count; ++i) {
        job.script.steps.push_back(
            {.kind = Step::Kind::receive, .peer = (member.rank + i) % member.count});
      }
      break;
    case CollectiveOp::broadcast:
      job.script = broadcast_steps(epoch, call.root, operands.output.size_bytes());
      break;
    case CollectiveOp::all_gather:
      job.script = all_gather_steps(epoch, sizes_of(operands.outputs));
      break;
    case CollectiveOp::gather:
      job.script = gather_script(
          member, call.root.value,
          is_root ? sizes_of(operands.outputs) : counts_with(operands.input.size_bytes()), kCut);
      break;
    case CollectiveOp::scatter:
      job.script = scatter_script(
          member, call.root.value,
          is_root ? sizes_of(operands.inputs) : counts_with(operands.output.size_bytes()), kCut);
      break;
    case CollectiveOp::all_to_all:
      job.script =
          all_to_all_script(member, sizes_of(operands.inputs), sizes_of(operands.outputs), kCut);
      break;
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
    case CollectiveOp::reduce_scatter:
      return no_script(call.op);
  }
  job.input = std::move(operands.inputs);
  if (job.input.empty()) job.input.push_back(std::move(operands.input));
  auto outputs = std::make_shared<std::vector<Flat>>(std::move(operands.outputs));
  if (outputs->empty()) outputs->push_back(std::move(operands.output));
  job.output = *outputs;
  const bool takes = !collective(call.op).has_root || call.op == CollectiveOp::scatter ||
                     (call.op == CollectiveOp::broadcast ? !is_root : is_root);
  std::vector<ScriptJob> jobs;
  jobs.push_back(std::move(job));
  return make_script_operation(fingerprint, sequence, *core.mesh(), core.id(), std::move(jobs),
                               [outputs, takes] {
                                 if (!takes) return;
                                 for (Flat& each : *outputs) each.finish();
                               });
}

}  // namespace

Result<std::shared_ptr<Operation>> make_operation(GroupCore& core, Epoch& epoch,
                                                  std::uint64_t sequence, const Call& call,
                                                  Hold hold) {
  TENDON_TRY(operands, read_operands(epoch, call, hold, "group.collective"));
  if (auto checked = check_operands(epoch, call, operands, "group.collective"); !checked) {
    Error error = std::move(checked).error();
    error.detail = to_string(call.op) + ": " + error.detail;
    return error;
  }
  const Fingerprint fingerprint = fingerprint_for(epoch, call, operands, sequence);
  FlatSummary given = take_summary(epoch, call, operands);
  Result<std::shared_ptr<Operation>> operation = std::shared_ptr<Operation>();
  if (epoch.board != nullptr) {
    const Showing showing = plan_showing(core, epoch, call, operands, fingerprint);
    auto rounds = rounds_for(core.epoch(), call, std::move(operands), showing.place);
    operation = make_board_operation(fingerprint, sequence, std::move(rounds), showing.plan);
  } else {
    check_forced(epoch.hosts);
    const auto over_links = collective(call.op).reduces ? reduce_over_links : move_over_links;
    operation = over_links(core, epoch, sequence, call, std::move(operands), fingerprint);
  }
  if (operation) (*operation)->set_given(std::move(given));
  return operation;
}

}  // namespace tendon::v0::detail
