// SPDX-License-Identifier: Apache-2.0
#include "control/flows/step_message.hpp"

#include <tendon/control/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

v1::Word word_of(const RosterId& id) {
  v1::Word word;
  word.set_run_id(id.run);
  word.set_roster(id.roster);
  return word;
}

bool is_of(const v1::Word& word, const RosterId& id) {
  return word.run_id() == id.run && word.roster() == id.roster;
}

v1::StepMessage message_of(const RosterId& id, v1::Flow flow, std::uint64_t sequence) {
  v1::StepMessage message;
  message.set_version(kControlVersion);
  message.set_run_id(id.run);
  message.set_roster(id.roster);
  message.set_flow(flow);
  message.set_sequence(sequence);
  return message;
}

std::shared_ptr<const std::string> encode(const v1::StepMessage& message) {
  return std::make_shared<const std::string>(message.SerializeAsString());
}

Result<v1::StepMessage> decode(Bytes bytes, const RosterId& expected) {
  v1::StepMessage message;
  // ZeroMQ's limit is far below 2 GiB.
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error{ErrorCode::corrupt_data, "control.decode",
                 std::to_string(bytes.size()) + " bytes are no StepMessage"};
  }
  TENDON_CHECK(check(message, expected));
  return message;
}

Result<void> check(const v1::StepMessage& message, const RosterId& expected) {
  if (message.version() != kControlVersion) {
    return Error{ErrorCode::version_mismatch, "control.decode",
                 "a StepMessage of version " + std::to_string(message.version()) +
                     "; this side has " + std::to_string(kControlVersion)};
  }
  if (message.run_id() != expected.run) {
    return Error{ErrorCode::protocol_violation, "control.decode", "a StepMessage of another run"};
  }
  if (message.roster() != expected.roster) {
    return Error{ErrorCode::protocol_violation, "control.decode",
                 "a StepMessage of roster " + std::to_string(message.roster()) + " in roster " +
                     std::to_string(expected.roster)};
  }
  if (message.flow() != v1::FLOW_PROBE && message.sequence() == 0) {
    return Error{ErrorCode::protocol_violation, "control.decode", "a StepMessage without a number"};
  }
  if (message.payload().size() > kMaxStepPayloadBytes) {
    return Error{ErrorCode::message_too_large, "control.decode",
                 "a payload of " + std::to_string(message.payload().size()) + " bytes; at most " +
                     std::to_string(kMaxStepPayloadBytes) + " are legal"};
  }
  return {};
}

Storage payload_of(v1::StepMessage message) {
  const auto kept = std::make_shared<v1::StepMessage>(std::move(message));
  std::string* bytes = kept->mutable_payload();
  return Storage(kept, reinterpret_cast<std::byte*>(bytes->data()), bytes->size(),
                 Access::read_write);
}

}  // namespace tendon::v0::detail
