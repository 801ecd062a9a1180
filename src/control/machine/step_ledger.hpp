// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tendon/control/step.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::v0::detail {

/// The ranks for whose outputs a controller waits: tensor rank 0 of the last stage, one for each KV
/// rank. By rising rank.
[[nodiscard]] std::vector<GlobalRank> output_ranks(const ParallelLayout& layout);

/// "rank 2", "ranks 1, 2 and 5".
[[nodiscard]] std::string text_of(const std::vector<GlobalRank>& ranks);

/// The steps of one roster that were sent and are not collected.
///
/// Owns:    their outputs.
/// Threads: one at a time.
/// Errors:  divergence, invalid_argument (no such step).
/// Blocks:  never.
/// Cost:    a lookup.
class StepLedger {
 public:
  explicit StepLedger(const ParallelLayout& layout)
      : senders_(output_ranks(layout)), limit_(layout.sizes().pipeline + 1) {}

  /// `sequence` is that of its StepInputs.
  void begin(std::uint64_t schedule_id, std::uint64_t sequence = 0) {
    steps_[schedule_id].sequence = sequence;
    ++in_flight_;
  }
  /// False: no such step, or it has this rank's outputs already.
  bool add(StepOutputs outputs);
  /// Notes that the first stage has passed on its part. False: no such step.
  bool add_microbatch(std::uint64_t schedule_id);

  /// The most steps that may be in flight, and that a rank may not have taken.
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  [[nodiscard]] bool has_room() const noexcept { return in_flight_ < limit_; }
  [[nodiscard]] bool is_idle() const noexcept { return in_flight_ == 0; }
  [[nodiscard]] std::size_t uncollected() const noexcept { return steps_.size() - in_flight_; }
  [[nodiscard]] bool has(std::uint64_t schedule_id) const { return steps_.contains(schedule_id); }
  /// The sequence of its StepInputs; 0: no such step.
  [[nodiscard]] std::uint64_t sequence_of(std::uint64_t schedule_id) const;
  [[nodiscard]] bool is_complete(std::uint64_t schedule_id) const;
  /// True if this rank sends outputs, and those of the step are here or were collected.
  [[nodiscard]] bool has_outputs(std::uint64_t schedule_id, GlobalRank rank) const;
  [[nodiscard]] bool has_microbatch(std::uint64_t schedule_id) const;
  /// The ranks whose outputs of this step are missing.
  [[nodiscard]] std::vector<GlobalRank> missing(std::uint64_t schedule_id) const;
  [[nodiscard]] std::vector<std::uint64_t> in_flight() const;
  /// The number of steps in flight, and what the oldest waits for. Precondition: there is one.
  [[nodiscard]] std::string why_busy() const;
  /// The outputs of a complete step, by rank.
  [[nodiscard]] Result<std::vector<StepOutputs>> collect(std::uint64_t schedule_id);
  /// Makes collected outputs collectable again.
  void put_back(std::vector<StepOutputs> outputs);
  /// Forgets all; returns the number of outputs that had arrived for incomplete steps.
  std::uint64_t clear();

 private:
  struct Record {
    std::map<GlobalRank, StepOutputs> outputs;
    bool microbatch = false;
    std::uint64_t sequence = 0;
  };
  /// Null: no such step.
  [[nodiscard]] const Record* find(std::uint64_t schedule_id) const {
    const auto step = steps_.find(schedule_id);
    return step == steps_.end() ? nullptr : &step->second;
  }
  [[nodiscard]] bool is_complete(const Record& record) const {
    return record.outputs.size() == senders_.size();
  }

  std::vector<GlobalRank> senders_;
  std::size_t limit_;
  std::map<std::uint64_t, Record> steps_;
  std::size_t in_flight_ = 0;
};

}  // namespace tendon::v0::detail
