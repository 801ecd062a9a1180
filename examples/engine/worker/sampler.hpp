// SPDX-License-Identifier: Apache-2.0
// Chooses the next token of a sequence from its logits, as sampler.py does. Randomness depends only
// on the seed and the position of the token, so a recomputed sequence gets the same tokens.
#pragma once

#include <tendon/v1/step.pb.h>

#include <cstdint>
#include <optional>
#include <span>
#include <tendon/core/result.hpp>

#include "worker/sequences.hpp"

namespace engine {

/// A number in [0, 1), by two rounds of splitmix64 (S. Vigna).
[[nodiscard]] double uniform(std::uint64_t seed, std::uint64_t position);

/// invalid_argument for a number that a sampler cannot use.
[[nodiscard]] tendon::Result<void> check_sampling(const v1::SamplingParams& params);

struct Chosen {
  std::uint32_t token = 0;
  std::optional<v1::TokenLogprobs> logprobs;  ///< if requested
};

/// `logits`: one for each token of the vocabulary, in double for any type of weights. Order:
/// penalties, ban of the end, temperature, top_k, top_p, min_p. Logarithms of probabilities are the
/// model's own, before all of these.
[[nodiscard]] Chosen choose(const Sequence& sequence, std::span<const double> logits);

/// FNV-1a, 64 bits, of seq_id, number of tokens and tokens of each output, as 8 bytes each, lowest
/// byte first.
[[nodiscard]] std::uint64_t tokens_hash(const v1::StepOutputs& outputs);

}  // namespace engine
