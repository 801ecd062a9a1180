// SPDX-License-Identifier: Apache-2.0
// The words of the two ends of a call beside its tensors: docs/protocol.md, "Calls".
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <type_traits>

namespace tendon::v0::detail {

/// The header of an `open` of purpose `call`. Little endian; a newer peer may append fields, which
/// are skipped.
struct CallOpening {
  std::uint32_t entity = 0;  ///< the responder, as its announcement names it
  std::uint32_t reserved = 0;

  friend bool operator==(const CallOpening&, const CallOpening&) = default;
};
static_assert(sizeof(CallOpening) == 8 && std::is_trivially_copyable_v<CallOpening>);

/// The kind of a call's message. Numbers are wire contract: append only.
enum class CallWordKind : std::uint32_t {
  request = 0,    ///< `data`: the tensors of the caller
  answer = 1,     ///< `data`: those of the responder
  error = 2,      ///< `bytes`: why there is no answer; `code` is its number
  cancelled = 3,  ///< `bytes`, empty: there is no answer to a cancelled request
};

/// The header of a message of purpose `call`. Little endian.
struct CallWord {
  std::uint64_t id = 0;       ///< of the request, not 0; no other open one of this channel has it
  std::uint64_t left_ns = 0;  ///< request: until its deadline; kNever: there is none
  CallWordKind kind = CallWordKind::request;
  std::uint32_t code = 0;

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  friend bool operator==(const CallWord&, const CallWord&) = default;
};
static_assert(sizeof(CallWord) == 24 && std::is_trivially_copyable_v<CallWord>);

/// Errors: protocol_violation.
[[nodiscard]] inline Result<CallOpening> read_call_opening(Bytes said) {
  CallOpening opening;
  if (said.size() < sizeof opening) {
    return Error{ErrorCode::protocol_violation, "responder.open",
                 "a pipe of calls was opened with " + std::to_string(said.size()) +
                     " bytes beside its purpose, fewer than " + std::to_string(sizeof opening)};
  }
  std::memcpy(&opening, said.data(), sizeof opening);
  return opening;
}

/// Reads a peer's header. Errors: protocol_violation, with a text that follows the peer's name.
[[nodiscard]] inline Result<CallWord> read_call_word(Bytes bytes) {
  CallWord word;
  if (bytes.size() != sizeof word) {
    return Error{ErrorCode::protocol_violation, "node.call",
                 "sent a call with a header of " + std::to_string(bytes.size()) +
                     " bytes, not of " + std::to_string(sizeof word)};
  }
  // Copied once: the peer could change its slot meanwhile.
  std::memcpy(&word, bytes.data(), sizeof word);
  if (word.id != 0) return word;
  return Error{ErrorCode::protocol_violation, "node.call", "sent a call with the number 0"};
}

}  // namespace tendon::v0::detail
