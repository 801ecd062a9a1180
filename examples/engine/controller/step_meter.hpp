// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/v1/step.pb.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tendon/tensor/value.hpp>

namespace engine {

/// Measures the parts of a step's time and the rate of tokens: moving means, for the live page.
///
/// Owns:    numbers.
/// Threads: one.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    some additions a step.
class StepMeter {
 public:
  using Clock = std::chrono::steady_clock;

  /// Notes a step that is sent; `inputs` describes its parts.
  void given(const tendon::v1::StepInputs& inputs, Clock::time_point now);
  /// Notes that all outputs of a step have arrived. False if the step does not count; its ranks'
  /// times are then ignored.
  [[nodiscard]] bool accepted(std::uint64_t schedule_id, Clock::time_point now);
  /// Notes the times that a rank reports with its outputs.
  void rank_said(std::uint32_t rank, const tendon::v1::StepDurations& durations);
  /// Forgets the running steps.
  void clear();
  void count_tokens(std::uint64_t tokens) { tokens_ += tokens; }

  /// {"tokens_per_s", "prompt_tokens_per_s"} of the last seconds; call it once per status.
  [[nodiscard]] tendon::Value rate(Clock::time_point now);
  /// {"count", "ms", "control_ms", "compute_ms", "wait_ms", "move_ms"}
  [[nodiscard]] tendon::Value step() const;
  /// {"compute", "wait", "move"} [ms]. A rank without outputs reports only the compute time of its
  /// last step (`load` [ms]): the rest of a step counts as wait.
  [[nodiscard]] tendon::Value of_rank(std::uint32_t rank, double load) const;

 private:
  class Mean {
   public:
    void add(double value) { value_ = value_ ? *value_ + (value - *value_) / 10 : value; }
    [[nodiscard]] double value() const { return value_.value_or(0); }

   private:
    std::optional<double> value_;
  };
  struct UnderWay {
    Clock::time_point begun;
    std::uint64_t prompt_tokens;
  };
  struct Durations {
    Mean compute_ms, wait_ms, move_ms;
  };
  struct Look {
    Clock::time_point at;
    std::uint64_t tokens;
    std::uint64_t prompt_tokens;
  };

  std::map<std::uint64_t, UnderWay> under_way_;
  std::map<std::uint32_t, Durations> ranks_;
  std::deque<Look> looks_;
  std::optional<Clock::time_point> accepted_at_;  ///< since then no step was sent
  Mean step_ms_, control_ms_;
  std::uint64_t steps_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t prompt_tokens_ = 0;
};

}  // namespace engine
