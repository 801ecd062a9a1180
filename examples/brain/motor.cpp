// SPDX-License-Identifier: Apache-2.0
// The motor of the brain: an arm that points at one of ten marks, 0 to 9. It moves to the digit
// that the prefrontal cortex decided on. Without a decision, it moves by reflex to the digit that
// vision sees. Information older than a quarter of a second does not move it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "digits.hpp"
#include "node_program.hpp"
#include "spikes.hpp"

namespace brain {
namespace {

constexpr std::uint64_t kFresh_ns = 250'000'000;
constexpr float kStep = 0.6F;       // marks a tick
constexpr float kReflexSpikes = 6;  // in about 50 ms

class Motor {
 public:
  void see(const tendon::Sample& sample) {
    const auto spikes = decode(sample.bytes.bytes());
    const std::lock_guard lock(mutex_);
    if (!spikes || spikes->neurons < kDigits) {
      ++refused_;
      return;
    }
    for (const std::uint32_t neuron : spikes->fired)
      seen_[std::min(neuron / (spikes->neurons / kDigits), kDigits - 1)] += 1;
  }

  void command(const tendon::Sample& sample) {
    const auto digit =
        sample.tensors ? sample.tensors->find_value("digit") : tendon::Result<Value>(Value());
    const std::lock_guard lock(mutex_);
    if (!digit || digit->kind() != Value::Kind::i64 || digit->as_i64() >= std::int64_t{kDigits}) {
      ++refused_;
      return;
    }
    digit_ = digit->as_i64();
    commanded_ns_ = sample.stamp;
  }

  /// Makes one tick of the arm, and returns its report.
  [[nodiscard]] tendon::TensorDict move() {
    const std::lock_guard lock(mutex_);
    const auto best = std::ranges::max_element(seen_);
    const char* by = "nothing";
    if (digit_ >= 0 && commanded_ns_ + kFresh_ns > boottime_ns()) {
      goal_ = static_cast<float>(digit_);
      by = "pfc";
      ++by_pfc_;
    } else if (*best >= kReflexSpikes) {
      goal_ = static_cast<float>(best - seen_.begin());
      by = "reflex";
      ++by_reflex_;
    }
    for (float& each : seen_) each *= 0.82F;
    position_ += std::clamp(goal_ - position_, -kStep, kStep);
    tendon::TensorDict status;
    status.set("arm", tendon::Tensor::of<float>({2}, {position_, goal_}));
    status.set("by", by);
    return status;
  }

  [[nodiscard]] Value::Map did() {
    const std::lock_guard lock(mutex_);
    return {{"by_pfc", by_pfc_}, {"by_reflex", by_reflex_}, {"refused", refused_}};
  }

 private:
  std::mutex mutex_;  // each inbox has its own thread
  std::array<float, kDigits> seen_{};
  std::int64_t digit_ = -1;
  std::uint64_t commanded_ns_ = 0;
  float position_ = 0;
  float goal_ = 0;
  std::uint64_t by_pfc_ = 0;
  std::uint64_t by_reflex_ = 0;
  std::uint64_t refused_ = 0;
};

void act() {
  Motor motor;
  NodeProgram program("motor");
  tendon::Publisher status = program.publisher("motor/status");
  const tendon::SubscriberOptions fresh{.window = kWindow,
                                        .max_age = std::chrono::nanoseconds(kFresh_ns)};
  program.subscribe(
      "vision/objects", [&](const tendon::Sample& sample) { motor.see(sample); }, fresh);
  program.subscribe(
      "pfc/control", [&](const tendon::Sample& sample) { motor.command(sample); }, fresh);
  while (program.tick()) {
    status.publish(motor.move()).value();
    program.beat(motor.did());
  }
  program.leave(motor.did());
}

}  // namespace
}  // namespace brain

int main() { return brain::run(brain::act); }
