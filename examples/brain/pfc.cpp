// SPDX-License-Identifier: Apache-2.0
// The prefrontal cortex of the brain: decides which digit is seen. It sums the spikes of vision
// over time, and forgets them when the sensor reports another digit. It tells all other nodes its
// decision and how closely vision must look. The spelling of language tells it whether it was
// understood.
#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <string_view>

#include "digits.hpp"
#include "node_program.hpp"
#include "spikes.hpp"

namespace brain {
namespace {

/// Sums the spikes for each digit, and forgets them with a time constant of 150 ms.
class Belief {
 public:
  static constexpr std::int64_t kUndecided = -1;

  /// Equal parts of vision's neurons stand for the digits.
  void add(const Spikes& spikes) {
    const std::uint32_t part = spikes.neurons / kDigits;
    if (part == 0) return;
    for (const std::uint32_t neuron : spikes.fired)
      evidence_[std::min(neuron / part, kDigits - 1)] += 1;
  }
  void forget() { evidence_.fill(0); }
  void tick() {
    for (float& each : evidence_) each *= 0.936F;
  }

  [[nodiscard]] std::int64_t digit() const {
    const auto best = std::ranges::max_element(evidence_);
    float second = 0;
    for (auto each = evidence_.begin(); each != evidence_.end(); ++each)
      if (each != best) second = std::max(second, *each);
    if (*best < 12 || *best < 1.5F * second) return kUndecided;
    return best - evidence_.begin();
  }
  [[nodiscard]] std::array<float, kDigits> shares() const {
    auto shares = evidence_;
    const float sum = std::accumulate(shares.begin(), shares.end(), 0.0F);
    for (float& each : shares) each /= std::max(sum, 1.0F);
    return shares;
  }

 private:
  std::array<float, kDigits> evidence_{};
};

class Pfc {
 public:
  void see(const tendon::Sample& sample) {
    const auto spikes = decode(sample.bytes.bytes());
    const std::lock_guard lock(mutex_);
    if (!spikes) {
      ++refused_;
      return;
    }
    spikes_ += spikes->fired.size();
    belief_.add(*spikes);
  }

  void sense(const tendon::Sample& sample) {
    const auto events = decode(sample.bytes.bytes());
    const std::lock_guard lock(mutex_);
    if (!events) {
      ++refused_;
      return;
    }
    // A change of many pixels at once means that another digit is shown. A burst lasts for several
    // ticks.
    const bool burst = events->fired.size() * 6 > events->neurons;
    if (burst && !bursting_) {
      belief_.forget();
      ++onsets_;
    }
    bursting_ = burst;
  }

  void hear(const tendon::Sample& sample) {
    if (!sample.tensors) return;
    const auto word = sample.tensors->find_value("word");
    const auto digit = sample.tensors->find_value("digit");
    const std::lock_guard lock(mutex_);
    if (!word || !digit || digit->kind() != Value::Kind::i64 ||
        word->kind() != Value::Kind::string || digit->as_i64() >= std::int64_t{kDigits}) {
      ++refused_;
      return;
    }
    if (digit->as_i64() < 0) return;  // language spells an undecided digit
    ++words_;
    if (word->as_string() == kWords[static_cast<std::size_t>(digit->as_i64())]) ++words_right_;
  }

  /// The sample to publish at one tick.
  [[nodiscard]] tendon::TensorDict control() {
    const std::lock_guard lock(mutex_);
    const std::int64_t digit = belief_.digit();
    if (digit != Belief::kUndecided && digit != decided_) ++decisions_;
    decided_ = digit;
    const auto shares = belief_.shares();
    belief_.tick();
    tendon::TensorDict control;
    control.set("belief", tendon::Tensor::of<float>({kDigits}, std::span<const float>(shares)));
    control.set("digit", digit);
    control.set("gain", digit == Belief::kUndecided ? 1.0 : 0.6);
    return control;
  }

  [[nodiscard]] Value::Map did() {
    const std::lock_guard lock(mutex_);
    return {{"decisions", decisions_}, {"spikes", spikes_},           {"onsets", onsets_},
            {"words", words_},         {"words_right", words_right_}, {"refused", refused_}};
  }

 private:
  std::mutex mutex_;  // each inbox has its own thread
  Belief belief_;
  std::int64_t decided_ = Belief::kUndecided;
  bool bursting_ = false;
  std::uint64_t decisions_ = 0;
  std::uint64_t spikes_ = 0;
  std::uint64_t onsets_ = 0;
  std::uint64_t words_ = 0;
  std::uint64_t words_right_ = 0;
  std::uint64_t refused_ = 0;
};

void decide() {
  Pfc pfc;
  NodeProgram program("pfc");
  tendon::Publisher control = program.publisher("pfc/control");
  program.subscribe("vision/*", [&](const tendon::Sample& sample) { pfc.see(sample); });
  program.subscribe("lang/*", [&](const tendon::Sample& sample) { pfc.hear(sample); });
  program.subscribe("sensor/new_data", [&](const tendon::Sample& sample) { pfc.sense(sample); });
  while (program.tick()) {
    control.publish(pfc.control()).value();
    program.beat(pfc.did());
  }
  program.leave(pfc.did());
}

}  // namespace
}  // namespace brain

int main() { return brain::run(brain::decide); }
