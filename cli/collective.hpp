// SPDX-License-Identifier: Apache-2.0
// One collective of a benchmark: its tensors, the call, and the check of its result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/group.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/tensor.hpp>

#include "cli/bench.hpp"

namespace tendon::cli {

[[nodiscard]] constexpr bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}
/// Whether the tensor consists of one block for each rank; its size is that of all blocks together.
[[nodiscard]] constexpr bool has_blocks(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::all_to_all;
}
[[nodiscard]] constexpr bool is_between_stages(Collective collective) {
  return collective == Collective::stage || collective == Collective::stage_whole ||
         collective == Collective::stage_first;
}
/// The factor that makes algbw comparable with the hardware's rate, whatever the number of ranks.
/// Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] double bus_factor(Collective collective, std::uint32_t ranks);

/// The call that one rank makes, at one size.
struct CollectiveCall {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceKind op = ReduceKind::sum;
  std::uint32_t root = 0;
  BenchMemory memory = BenchMemory::ordinary;
  std::uint64_t count = 0;  ///< elements: of a block where there are blocks, else of the tensor

  [[nodiscard]] std::uint64_t element_count(std::uint32_t ranks) const {
    return has_blocks(collective) ? count * ranks : count;
  }
};

/// Whether known numbers can be combined without rounding, so that a difference is a fault.
[[nodiscard]] Result<void> check_is_exact(const CollectiveCall& call, std::uint32_t ranks);

/// The tensors of a call and the call itself, on one rank.
///
/// Owns:    the tensors, every page touched.
/// Threads: one at a time.
/// Errors:  those of Group; resource_exhausted for memory.
/// Blocks:  run() until the deadline.
/// Cost:    two tensors, one where the collective works in place (allreduce, broadcast) or between
///          stages, for which make() is a collective call too.
class CollectiveRun {
 public:
  [[nodiscard]] static Result<CollectiveRun> make(Context& context, Group& group,
                                                  const CollectiveCall& call);
  /// Makes one call.
  [[nodiscard]] Result<void> run(Deadline deadline);
  /// Makes one call with known numbers; returns how many elements of this rank's result are wrong.
  /// The numbers depend on `seed`, so that the result of an earlier call looks wrong.
  [[nodiscard]] Result<std::uint64_t> run_checked(std::uint64_t seed, Deadline deadline);

 private:
  CollectiveRun(Group& group, const CollectiveCall& call)
      : group_(&group), call_(call), rank_(group.rank().value), ranks_(group.size()) {}
  [[nodiscard]] Result<void> run_between_stages(Deadline deadline);
  [[nodiscard]] bool is_sender() const { return rank_ < ranks_ / 2; }
  void fill_input(std::uint64_t seed);
  [[nodiscard]] std::uint64_t expected(std::uint64_t seed, std::uint64_t index) const;

  Group* group_;
  CollectiveCall call_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  Tensor input_;                  // the only one where the collective works in place
  Tensor output_;                 // the same tensor where it works in place
  std::shared_ptr<Group> stage_;  // this rank's half, between stages
  Tensor answer_;
};

}  // namespace tendon::cli
