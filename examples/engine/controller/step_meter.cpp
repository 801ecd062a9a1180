// SPDX-License-Identifier: Apache-2.0
#include "controller/step_meter.hpp"

#include <algorithm>
#include <utility>

namespace engine {
namespace {

using namespace std::chrono_literals;
using tendon::Value;

// Rates are means over this time.
constexpr auto kRateTime = 2s;
// Above this, the controller was idle: the time is not counted as control.
constexpr double kIdleMs = 20;

double ms(StepMeter::Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}
double ms_of_ns(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

void StepMeter::given(const tendon::v1::StepInputs& inputs, Clock::time_point now) {
  if (const auto accepted_at = std::exchange(accepted_at_, std::nullopt)) {
    if (const double took = ms(now - *accepted_at); took < kIdleMs) control_ms_.add(took);
  }
  // A step that only ends sequences takes no time and would distort the mean.
  if (inputs.scheduler_output().seq_schedule_metadata_list().empty()) return;
  std::uint64_t prompt_tokens = 0;
  for (const auto& part : inputs.scheduler_output().seq_schedule_metadata_list()) {
    if (part.num_q_tokens() > 1) prompt_tokens += part.num_q_tokens();
  }
  under_way_.insert_or_assign(inputs.scheduler_output().schedule_id(),
                              UnderWay{now, prompt_tokens});
}

bool StepMeter::accepted(std::uint64_t schedule_id, Clock::time_point now) {
  const auto step = under_way_.find(schedule_id);
  if (step == under_way_.end()) return false;
  step_ms_.add(ms(now - step->second.begun));
  prompt_tokens_ += step->second.prompt_tokens;
  under_way_.erase(step);
  ++steps_;
  accepted_at_ = now;
  return true;
}

void StepMeter::rank_said(std::uint32_t rank, const tendon::v1::StepDurations& durations) {
  Durations& its = ranks_[rank];
  its.compute_ms.add(ms_of_ns(durations.compute()));
  its.wait_ms.add(ms_of_ns(durations.wait()));
  its.move_ms.add(ms_of_ns(durations.move()));
}

void StepMeter::clear() {
  under_way_.clear();
  accepted_at_.reset();
}

Value StepMeter::rate(Clock::time_point now) {
  looks_.push_back({now, tokens_, prompt_tokens_});
  while (now - looks_.front().at > kRateTime) looks_.pop_front();
  const Look& first = looks_.front();
  const double seconds = std::max(std::chrono::duration<double>(now - first.at).count(), 1e-3);
  return Value::Map{
      {"tokens_per_s", static_cast<double>(tokens_ - first.tokens) / seconds},
      {"prompt_tokens_per_s", static_cast<double>(prompt_tokens_ - first.prompt_tokens) / seconds}};
}

Value StepMeter::step() const {
  const auto first = ranks_.begin();
  const Durations* its = first == ranks_.end() ? nullptr : &first->second;
  return Value::Map{{"count", steps_},
                    {"ms", step_ms_.value()},
                    {"control_ms", control_ms_.value()},
                    {"compute_ms", its ? its->compute_ms.value() : 0.0},
                    {"wait_ms", its ? its->wait_ms.value() : 0.0},
                    {"move_ms", its ? its->move_ms.value() : 0.0}};
}

Value StepMeter::of_rank(std::uint32_t rank, double load) const {
  if (const auto its = ranks_.find(rank); its != ranks_.end()) {
    return Value::Map{{"compute", its->second.compute_ms.value()},
                      {"wait", its->second.wait_ms.value()},
                      {"move", its->second.move_ms.value()}};
  }
  const double compute = std::clamp(load, 0.0, step_ms_.value());
  return Value::Map{{"compute", compute}, {"wait", step_ms_.value() - compute}, {"move", 0.0}};
}

}  // namespace engine
