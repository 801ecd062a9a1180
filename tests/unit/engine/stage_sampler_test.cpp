// SPDX-License-Identifier: Apache-2.0
// The next token from logits. The golden numbers are results of engine/sampler.py and
// engine/step.py.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "worker/sampler.hpp"

namespace engine {
namespace {

Sequence sequence_of(std::vector<std::uint32_t> prompt, std::vector<std::uint32_t> outputs = {}) {
  Sequence made;
  made.params.set_seq_id(1);
  for (const std::uint32_t token : prompt) made.params.add_prompt_token_ids(token);
  made.tokens = std::move(prompt);
  made.tokens.insert(made.tokens.end(), outputs.begin(), outputs.end());
  return made;
}

/// How often each token is drawn with many seeds.
std::map<std::uint32_t, int> draws(Sequence sequence, const std::vector<double>& logits) {
  std::map<std::uint32_t, int> counts;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    sequence.params.mutable_sampling_params()->set_seed(seed);
    ++counts[choose(sequence, logits).token];
  }
  return counts;
}

TEST(Sampler, DrawsTheNumbersOfPython) {
  EXPECT_EQ(uniform(0, 0), 0x1.4e0dba5e9a32fp-1);
  EXPECT_EQ(uniform(7, 18), 0x1.60ed560c013b4p-3);
  EXPECT_EQ(uniform(18446744073709551615ULL, 5), 0x1.ab1099d49b614p-3);
}

TEST(Sampler, HashesTokensAsPythonDoes) {
  v1::StepOutputs outputs;
  EXPECT_EQ(tokens_hash(outputs), 0xcbf29ce484222325ULL);
  v1::SamplerOutput& one = *outputs.add_sampler_outputs();
  one.set_seq_id(100);
  one.add_output_tokens(5);
  v1::SamplerOutput& other = *outputs.add_sampler_outputs();
  other.set_seq_id((1ULL << 63) + 1);
  other.add_output_tokens(7);
  other.add_output_tokens(119);
  EXPECT_EQ(tokens_hash(outputs), 0x52bbe94287c32f56ULL);
}

TEST(Sampler, WithoutATemperatureTheFirstOfTheLargestIsChosen) {
  const Chosen chosen = choose(sequence_of({0}), std::vector<double>{1, 3, 2, 3});
  EXPECT_EQ(chosen.token, 1U);
  EXPECT_FALSE(chosen.logprobs.has_value());
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  Sequence sequence = sequence_of({0}, {2});
  auto& params = *sequence.params.mutable_sampling_params();
  params.set_logprobs(2);
  params.set_presence_penalty(2);
  // Weights 1, 2, 4, 3: token 2 is the largest until it is penalised.
  const std::vector<double> logits{std::log(1), std::log(2), std::log(4), std::log(3)};
  const Chosen chosen = choose(sequence, logits);
  EXPECT_EQ(chosen.token, 3U);
  ASSERT_TRUE(chosen.logprobs.has_value());
  EXPECT_FLOAT_EQ(chosen.logprobs->logprob(), std::log(0.3F));
  ASSERT_EQ(chosen.logprobs->top_size(), 2);
  EXPECT_EQ(chosen.logprobs->top(0).token_id(), 2U);
  EXPECT_FLOAT_EQ(chosen.logprobs->top(0).logprob(), std::log(0.4F));
  EXPECT_EQ(chosen.logprobs->top(1).token_id(), 3U);
}

TEST(Sampler, PenaltiesAreForWhatWasSaid) {
  Sequence sequence = sequence_of({3}, {0, 0, 1});
  auto& params = *sequence.params.mutable_sampling_params();
  params.set_frequency_penalty(0.5);
  EXPECT_EQ(choose(sequence, std::vector<double>{2, 1.6, 1, 0}).token, 1U);
  params.clear_frequency_penalty();
  params.set_repetition_penalty(2);  // of the prompt too; divides logits above 0
  EXPECT_EQ(choose(sequence, std::vector<double>{2, 2, 1.1, 2.1}).token, 2U);
  EXPECT_EQ(choose(sequence, std::vector<double>{-1, -1, -1.5, -1}).token, 2U);
}

TEST(Sampler, TheEndIsBannedBeforeMinTokens) {
  Sequence sequence = sequence_of({0}, {1});
  sequence.params.set_eos_token_id(2);
  sequence.params.mutable_sampling_params()->set_min_tokens(2);
  const std::vector<double> logits{0, 1, 5, 2};
  EXPECT_EQ(choose(sequence, logits).token, 3U);
  sequence.tokens.push_back(3);
  EXPECT_EQ(choose(sequence, logits).token, 2U);
}

TEST(Sampler, DrawsFollowTheWeights) {
  Sequence sequence = sequence_of({0});
  auto& params = *sequence.params.mutable_sampling_params();
  params.set_temperature(1);
  const std::vector<double> logits{std::log(1), std::log(2), std::log(4), std::log(3)};
  auto counts = draws(sequence, logits);
  for (const std::uint32_t token : {0U, 1U, 2U, 3U}) {
    EXPECT_NEAR(counts[token], 1000 * std::exp(logits[token]) / 10, 50) << token;
  }
  params.set_temperature(0.5);  // weights 1, 4, 16, 9
  counts = draws(sequence, logits);
  EXPECT_NEAR(counts[2], 533, 50);
}

TEST(Sampler, CutsKeepTheMostProbable) {
  Sequence sequence = sequence_of({0});
  auto& params = *sequence.params.mutable_sampling_params();
  params.set_temperature(1);
  const std::vector<double> logits{std::log(1), std::log(2), std::log(4), std::log(3)};
  params.set_top_k(2);
  auto counts = draws(sequence, logits);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[2], 571, 50);
  params.clear_top_k();
  params.set_top_p(0.65F);
  EXPECT_EQ(draws(sequence, logits).size(), 2U);
  params.set_top_p(0.75F);
  EXPECT_EQ(draws(sequence, logits).size(), 3U);
  params.set_top_p(0);
  EXPECT_EQ(draws(sequence, logits).size(), 1U);
  params.clear_top_p();
  params.set_min_p(0.6F);
  counts = draws(sequence, logits);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_FALSE(counts.contains(1));
}

TEST(Sampler, TopPMayNeedMoreThanTheFirstCandidates) {
  Sequence sequence = sequence_of({0});
  auto& params = *sequence.params.mutable_sampling_params();
  params.set_temperature(1);
  params.set_top_p(0.9F);
  const auto counts = draws(sequence, std::vector<double>(2000, 0.0));
  EXPECT_GT(counts.rbegin()->first, 1600U);
  EXPECT_LT(counts.rbegin()->first, 1800U);
}

}  // namespace
}  // namespace engine
