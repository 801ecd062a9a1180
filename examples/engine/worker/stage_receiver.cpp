// SPDX-License-Identifier: Apache-2.0
#include "worker/stage_receiver.hpp"

#include <algorithm>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/group/stage.hpp>
#include <utility>

namespace engine {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kStepTag = 0x53746570;  // "Step"; _STEP_TAG of moves.py
// The timeout of one move if the step names none: the default of a Context in Python.
constexpr std::chrono::milliseconds kMovePatience = 30s;

std::uint64_t ns_of(std::chrono::steady_clock::duration time) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::nanoseconds(time).count(), 0));
}

}  // namespace

void StageReceiver::begin(const tendon::v1::StepInputs& step) {
  schedule_id_ = step.scheduler_output().schedule_id();
  until_ = step.deadline_ms() == 0
               ? tendon::Deadline::never()
               : tendon::Deadline(std::chrono::milliseconds(step.deadline_ms()));
  move_timeout_ = step.move_timeout_ms() == 0 ? kMovePatience
                                              : std::chrono::milliseconds(step.move_timeout_ms());
  begun_ = Clock::now();
  wait_ = move_ = {};
}

tendon::Result<void> StageReceiver::receive(const tendon::Tensor& into) {
  tendon::Group& stages = *groups_.pipeline;
  const std::uint32_t mine = stages.rank().value;
  const tendon::GroupRank before{mine - 1};
  TENDON_TRY(step, tendon::Tensor::zeros(tendon::DType::i64, {1}));
  const auto asked = Clock::now();
  TENDON_CHECK(stages.recv(step, {.rank = before, .tag = kStepTag}, deadline()));
  const auto begun = Clock::now();
  wait_ += begun - asked;
  const auto sent = static_cast<std::uint64_t>(step.item<std::int64_t>({0}));
  if (sent != schedule_id_) {
    return tendon::Error{tendon::ErrorCode::mismatch, "engine.stage",
                         "stage " + std::to_string(mine) +
                             ": the stage before sent what belongs to step " +
                             std::to_string(sent) + ", and step " + std::to_string(schedule_id_) +
                             " runs here; give all ranks the same steps in the same order"};
  }
  TENDON_CHECK(tendon::recv_from_stage(stages, *groups_.tensor, into, before, deadline()));
  // Counts the time beyond the shortest one as waiting: a single move does not show which part was
  // waiting.
  const auto took = Clock::now() - begun;
  auto& least = least_.try_emplace(into.element_count(), took).first->second;
  least = std::min(least, took);
  move_ += least;
  wait_ += took - least;
  return {};
}

tendon::v1::StepDurations StageReceiver::end() const {
  tendon::v1::StepDurations said;
  said.set_compute(ns_of(Clock::now() - begun_ - wait_ - move_));
  said.set_wait(ns_of(wait_));
  said.set_move(ns_of(move_));
  return said;
}

tendon::Deadline StageReceiver::deadline() const {
  return until_.is_never() ? tendon::Deadline(move_timeout_) : until_;
}

}  // namespace engine
