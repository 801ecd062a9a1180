// SPDX-License-Identifier: Apache-2.0
// A client's request and the replies to it.
#pragma once

#include <tendon/v1/step.pb.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace engine {

namespace v1 = tendon::v1;

struct Request {
  std::string id;                     ///< the client's; unique among the active requests
  std::vector<std::uint32_t> prompt;  ///< tokens
  v1::SamplingParams sampling;        ///< max_tokens is set
  std::uint64_t arrival_ns = 0;       ///< wall clock
};

enum class RefusalCode : std::uint8_t {
  context_too_long,
  memory_too_small,
  queue_full,
  malformed,
  duplicate_id,
  stopping,
};

[[nodiscard]] constexpr std::string_view to_string(RefusalCode code) {
  switch (code) {
    case RefusalCode::context_too_long:
      return "context_too_long";
    case RefusalCode::memory_too_small:
      return "memory_too_small";
    case RefusalCode::queue_full:
      return "queue_full";
    case RefusalCode::malformed:
      return "malformed";
    case RefusalCode::duplicate_id:
      return "duplicate_id";
    case RefusalCode::stopping:
      return "stopping";
  }
  return "unknown";
}

struct Refusal {
  RefusalCode code;
  std::string message;
};

/// The next tokens of a request; each is sent once.
struct NewTokens {
  std::string id;
  std::vector<std::uint32_t> tokens;
  std::vector<v1::TokenLogprobs> logprobs = {};  ///< one for each token, if requested
};

/// The reason why an accepted request could not finish.
struct Failure {
  std::string code;
  std::string message;
};

struct Done {
  std::string id;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  Failure failure = {};  ///< with FINISH_REASON_FAILED
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;  ///< sent to the client, without an end-of-sequence token
};

using Notice = std::variant<NewTokens, Done>;

}  // namespace engine
