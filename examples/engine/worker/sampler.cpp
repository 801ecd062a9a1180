// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tendon/core/error.hpp>
#include <vector>

namespace engine {
namespace {

// The number of most probable tokens that usually suffice for top_p; otherwise all are sorted.
constexpr std::size_t kCandidates = 1024;

/// The tokens that remain after a cut, and their weights; not scaled to a sum of 1.
struct Candidates {
  std::vector<double> weights;
  std::vector<std::uint32_t> tokens;  ///< empty: all, in their order
};

std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

std::uint64_t seed_of(const Sequence& sequence) {
  const v1::SamplingParams& params = sequence.params.sampling_params();
  return params.has_seed() ? params.seed() : mixed(sequence.params.seq_id());
}

bool repeats_cost(const v1::SamplingParams& params) {
  return params.has_repetition_penalty() && params.repetition_penalty() != 1;
}

/// An eos_token_id of 0 means that the model has none.
bool bans_end(const Sequence& sequence) {
  return sequence.params.eos_token_id() != 0 && sequence.tokens.size() - sequence.prompt_count() <
                                                    sequence.params.sampling_params().min_tokens();
}

void change(const Sequence& sequence, std::vector<double>& logits) {
  const v1::SamplingParams& params = sequence.params.sampling_params();
  if (repeats_cost(params)) {
    const double penalty = params.repetition_penalty();
    for (const std::uint32_t token : std::set(sequence.tokens.begin(), sequence.tokens.end())) {
      logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
    }
  }
  std::map<std::uint32_t, std::uint32_t> counts;
  for (std::size_t at = sequence.prompt_count(); at < sequence.tokens.size(); ++at) {
    ++counts[sequence.tokens[at]];
  }
  for (const auto& [token, count] : counts) {
    logits[token] -= double{params.presence_penalty()} + double{params.frequency_penalty()} * count;
  }
  if (bans_end(sequence)) {
    logits[sequence.params.eos_token_id()] = -std::numeric_limits<double>::infinity();
  }
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// The `count` largest weights in falling order; the lower token first among equals.
Candidates largest(const std::vector<double>& weights, std::size_t count) {
  Candidates found;
  found.tokens.resize(weights.size());
  std::iota(found.tokens.begin(), found.tokens.end(), 0U);
  const auto end = found.tokens.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(found.tokens.begin(), end, found.tokens.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
                    });
  found.tokens.resize(count);
  for (const std::uint32_t token : found.tokens) found.weights.push_back(weights[token]);
  return found;
}

/// At most top_k (0: all), and only as many as reach top_p of their sum.
Candidates cut(const std::vector<double>& weights, std::size_t top_k, std::optional<double> top_p) {
  const std::size_t count = std::min(top_k > 0 ? top_k : kCandidates, weights.size());
  Candidates kept = largest(weights, count);
  if (!top_p) return kept;
  const double wanted = *top_p * sum_of(top_k > 0 ? kept.weights : weights);
  if (top_k == 0 && count < weights.size() && sum_of(kept.weights) < wanted) {
    kept = largest(weights, weights.size());
  }
  std::size_t needed = 0;
  for (double before = 0; needed < kept.weights.size() && before < wanted; ++needed) {
    before += kept.weights[needed];
  }
  needed = std::max<std::size_t>(needed, 1);
  kept.weights.resize(needed);
  kept.tokens.resize(needed);
  return kept;
}

/// The token at the place `at` of the distribution function after the cuts.
std::uint32_t drawn(const v1::SamplingParams& params, const std::vector<double>& logits,
                    double at) {
  Candidates kept;
  kept.weights.reserve(logits.size());
  const double most = *std::ranges::max_element(logits);
  for (const double logit : logits) {
    kept.weights.push_back(std::exp((logit - most) / params.temperature()));
  }
  const bool cuts_sum = params.has_top_p() && params.top_p() < 1;
  if (cuts_sum || params.top_k() > 0) {
    kept = cut(kept.weights, params.top_k(),
               cuts_sum ? std::optional<double>(params.top_p()) : std::nullopt);
  }
  const double least = double{params.min_p()} * *std::ranges::max_element(kept.weights);
  for (double& weight : kept.weights) {
    if (weight < least) weight = 0;
  }
  std::vector<double> rising(kept.weights.size());
  std::partial_sum(kept.weights.begin(), kept.weights.end(), rising.begin());
  // Never a token of weight 0; only rounding reaches the sum itself.
  auto place = static_cast<std::size_t>(std::ranges::upper_bound(rising, at * rising.back()) -
                                        rising.begin());
  if (place == rising.size()) {
    do {
      --place;
    } while (kept.weights[place] == 0);
  }
  return kept.tokens.empty() ? static_cast<std::uint32_t>(place) : kept.tokens[place];
}

v1::TokenLogprobs logprobs_of(std::span<const double> logits, std::uint32_t token,
                              std::size_t others) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  const double base = most + std::log(sum);
  v1::TokenLogprobs said;
  said.set_logprob(static_cast<float>(logits[token] - base));
  if (others == 0) return said;
  const std::vector<double> all(logits.begin(), logits.end());
  for (const std::uint32_t each : largest(all, std::min(others, all.size())).tokens) {
    v1::TokenLogprob& top = *said.add_top();
    top.set_token_id(each);
    top.set_logprob(static_cast<float>(logits[each] - base));
  }
  return said;
}

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t position) {
  return std::ldexp(static_cast<double>(mixed(mixed(seed) ^ position) >> 11), -53);
}

tendon::Result<void> check_sampling(const v1::SamplingParams& params) {
  struct Range {
    const char* name;
    bool is_said;
    double value, least, most;
  };
  const std::array ranges{
      Range{"temperature", params.has_temperature(), params.temperature(), 0, 100},
      Range{"top_p", params.has_top_p(), params.top_p(), 0, 1},
      Range{"min_p", params.has_min_p(), params.min_p(), 0, 1},
      Range{"repetition_penalty", params.has_repetition_penalty(), params.repetition_penalty(),
            0.01F, 100},
      Range{"presence_penalty", params.has_presence_penalty(), params.presence_penalty(), -2, 2},
      Range{"frequency_penalty", params.has_frequency_penalty(), params.frequency_penalty(), -2, 2},
      Range{"logprobs", params.has_logprobs(), static_cast<double>(params.logprobs()), 0, 20},
      Range{"max_tokens", params.has_max_tokens(), static_cast<double>(params.max_tokens()), 1,
            std::numeric_limits<std::uint32_t>::max()},
  };
  for (const Range& each : ranges) {
    if (!each.is_said || (each.value >= each.least && each.value <= each.most)) continue;
    return tendon::Error{tendon::ErrorCode::invalid_argument, "engine.step",
                         std::string("sampling_params.") + each.name + " is " +
                             std::to_string(each.value) + "; legal is " +
                             std::to_string(each.least) + " to " + std::to_string(each.most)};
  }
  return {};
}

Chosen choose(const Sequence& sequence, std::span<const double> logits) {
  const v1::SamplingParams& params = sequence.params.sampling_params();
  std::vector<double> changed(logits.begin(), logits.end());
  change(sequence, changed);
  Chosen chosen;
  if (params.temperature() > 0) {
    chosen.token = drawn(params, changed, uniform(seed_of(sequence), sequence.tokens.size()));
  } else {
    // The first of equals.
    chosen.token = static_cast<std::uint32_t>(std::ranges::max_element(changed) - changed.begin());
  }
  if (params.has_logprobs()) chosen.logprobs = logprobs_of(logits, chosen.token, params.logprobs());
  return chosen;
}

std::uint64_t tokens_hash(const v1::StepOutputs& outputs) {
  std::uint64_t hash = 0xCBF29CE484222325;
  const auto add = [&](std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ ((word >> (8 * byte)) & 0xFF)) * 0x100000001B3;
    }
  };
  for (const v1::SamplerOutput& output : outputs.sampler_outputs()) {
    add(output.seq_id());
    add(static_cast<std::uint64_t>(output.output_tokens_size()));
    for (const std::uint32_t token : output.output_tokens()) add(token);
  }
  return hash;
}

}  // namespace engine
