// SPDX-License-Identifier: Apache-2.0
// The language module of the brain: spells the digit that the prefrontal cortex decided on. It is
// one small network in two processes that compute together, as a group in the same system. Each
// process has half of the hidden neurons: columns of the first matrix and rows of the second. It
// adds its part of the letters' scores to the other's (all_reduce). Neither half knows all words:
// the codes of 0 and 8, and of 1 and 9, differ only in the second half, and the code of 7 has no
// first half.
//
// The environment sets rank and rendezvous: RANK, WORLD_SIZE, TENDON_RENDEZVOUS. Rank 0 is the
// node "language", which publishes; rank 1, "language-1", follows it.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tendon/group/group.hpp>

#include "digits.hpp"
#include "node_program.hpp"

namespace brain {
namespace {

constexpr std::uint32_t kHidden = 16;
constexpr std::size_t kPlaces = 5;    // of the longest word
constexpr std::size_t kLetters = 27;  // none, a to z
constexpr auto kLeaderSilent = 30s;

/// A row of the Hadamard matrix for each digit: the codes of two digits are orthogonal.
float code(std::uint32_t digit, std::uint32_t neuron) {
  return std::popcount((digit + 1) & neuron) % 2 == 0 ? 1.0F : -1.0F;
}

std::size_t letter(std::uint32_t digit, std::size_t place) {
  const std::string_view word = kWords[digit];
  return place < word.size() ? static_cast<std::size_t>(word[place] - 'a' + 1) : 0;
}

/// The part of the letters' scores that the hidden neurons of one rank contribute.
void spell_half(std::span<const float> belief, std::uint32_t rank, std::span<float> scores) {
  std::ranges::fill(scores, 0.0F);
  for (std::uint32_t neuron = rank * kHidden / 2; neuron < (rank + 1) * kHidden / 2; ++neuron) {
    float activity = 0;
    for (std::uint32_t digit = 0; digit < kDigits; ++digit)
      activity += belief[digit] * code(digit, neuron);
    activity = std::max(activity, 0.0F);
    for (std::uint32_t digit = 0; digit < kDigits; ++digit)
      for (std::size_t place = 0; place < kPlaces; ++place)
        scores[place * kLetters + letter(digit, place)] += activity * code(digit, neuron);
  }
}

std::string read_word(std::span<const float> scores) {
  std::string word;
  for (std::size_t place = 0; place < kPlaces; ++place) {
    const auto row = scores.subspan(place * kLetters, kLetters);
    const auto best = std::ranges::max_element(row) - row.begin();
    if (best != 0) word += static_cast<char>('a' + best - 1);
  }
  return word;
}

/// The newest control, written by the thread of its inbox.
class Heard {
 public:
  void hear(const tendon::Sample& sample) {
    if (!sample.tensors) return;
    const auto belief = sample.tensors->find("belief");
    const auto digit = sample.tensors->find_value("digit");
    if (!belief || !digit || digit->kind() != Value::Kind::i64) return;
    const auto shares = belief->try_span<const float>();
    if (!shares || shares->size() != kDigits) return;
    const std::lock_guard lock(mutex_);
    std::ranges::copy(*shares, belief_.begin());
    digit_ = digit->as_i64();
  }
  /// Copies the belief to `input` and returns the decided digit; after a decision the belief is
  /// that digit alone.
  std::int64_t read(std::span<float> input) {
    const std::lock_guard lock(mutex_);
    std::ranges::copy(belief_, input.begin());
    if (digit_ >= 0 && digit_ < std::int64_t{kDigits}) {
      std::ranges::fill(input.first(kDigits), 0.0F);
      input[static_cast<std::size_t>(digit_)] = 1;
    }
    return digit_;
  }

 private:
  std::mutex mutex_;
  std::array<float, kDigits> belief_{};
  std::int64_t digit_ = -1;
};

void speak() {
  const tendon::Rendezvous rendezvous = tendon::Rendezvous::from_environment();
  const std::uint32_t rank = rendezvous.rank().value;
  NodeProgram program(rank == 0 ? "language" : "language-" + std::to_string(rank));
  tendon::Group group = tendon::Group::join(program.context(), rendezvous, kPatience).value();
  if (group.size() != 2) {
    throw tendon::Exception({tendon::ErrorCode::invalid_argument, "language",
                             "a group of " + std::to_string(group.size()) + "; it has two halves"});
  }

  Heard heard;
  std::optional<tendon::Publisher> features;
  if (rank == 0) {
    features = program.publisher("lang/features");
    program.subscribe("pfc/control", [&](const tendon::Sample& sample) { heard.hear(sample); });
  }
  const tendon::Tensor input = tendon::Tensor::zeros(tendon::DType::f32, {kDigits + 1}).value();
  const tendon::Tensor letters =
      tendon::Tensor::zeros(tendon::DType::f32, {kPlaces, kLetters}).value();
  const auto numbers = input.span<float>();
  std::uint64_t steps = 0;
  const auto did = [&] { return Value::Map{{"rank", rank}, {"steps", steps}}; };
  for (bool goes_on = true; goes_on;) {
    std::int64_t digit = -1;
    if (rank == 0) {
      goes_on = program.tick();
      digit = heard.read(numbers);
      numbers[kDigits] = goes_on ? 1 : 0;
    } else {
      (void)program.tick_with_group();  // fails when rank 0 ends
    }
    group.broadcast(input, tendon::GroupRank{0}, kLeaderSilent).value();
    goes_on = numbers[kDigits] != 0;
    if (!goes_on) break;
    spell_half(numbers.first(kDigits), rank, letters.span<float>());
    group.all_reduce(letters, tendon::ReduceOp::sum, kPatience).value();
    ++steps;
    if (rank == 0) {
      tendon::TensorDict said;
      said.set("letters", letters);
      said.set("word", digit < 0 ? std::string() : read_word(letters.span<float>()));
      said.set("digit", digit);
      features->publish(said).value();
    }
    program.beat(did());
  }
  if (features) (void)features->close(2s);
  program.leave(did());
}

}  // namespace
}  // namespace brain

int main() { return brain::run(brain::speak); }
