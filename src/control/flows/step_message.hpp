// SPDX-License-Identifier: Apache-2.0
// A message of a step flow as bytes, and the checks before any of it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>

#include "tendon/v1/control.pb.h"

namespace tendon::v0::detail {

inline constexpr std::uint32_t kControlVersion = 1;
inline constexpr std::size_t kRunIdBytes = 16;

/// The run and the roster of a message.
struct RosterId {
  std::string run;
  std::uint64_t roster = 0;
};

/// A word that names them.
[[nodiscard]] v1::Word word_of(const RosterId& id);
[[nodiscard]] bool is_of(const v1::Word& word, const RosterId& id);
/// A message of a flow with its envelope; the sender of outputs adds its rank.
[[nodiscard]] v1::StepMessage message_of(const RosterId& id, v1::Flow flow,
                                         std::uint64_t sequence = 0);
[[nodiscard]] std::shared_ptr<const std::string> encode(const v1::StepMessage& message);
/// Reads a message of this roster. Errors: corrupt_data, version_mismatch, message_too_large, and
/// protocol_violation if run or roster differs, or the number is missing.
[[nodiscard]] Result<v1::StepMessage> decode(Bytes bytes, const RosterId& expected);
/// The checks of decode() for a message inside a word.
[[nodiscard]] Result<void> check(const v1::StepMessage& message, const RosterId& expected);
/// A share of the bytes in a message, which keeps the message.
[[nodiscard]] Storage payload_of(v1::StepMessage message);

}  // namespace tendon::v0::detail
