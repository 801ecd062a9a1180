// SPDX-License-Identifier: Apache-2.0
// Both ends of a flow after a loss: the other end's position, and the messages to ask for.
#pragma once

#include <google/protobuf/map.h>

#include <cstdint>
#include <optional>
#include <tendon/control/worker_status.hpp>
#include <utility>
#include <vector>

#include "control/flows/flow_receiver.hpp"
#include "control/flows/step_message.hpp"

namespace tendon::v0::detail {

/// The number in a heartbeat for a flow, 0 when there is none.
[[nodiscard]] inline std::uint64_t number_of(
    const google::protobuf::Map<std::uint32_t, std::uint64_t>& said, v1::Flow flow) {
  const auto found = said.find(static_cast<std::uint32_t>(flow));
  return found == said.end() ? 0 : found->second;
}

/// The request for missing messages.
[[nodiscard]] inline v1::Word request_of(const MissingRange& missing, v1::Flow flow,
                                         const RosterId& id) {
  v1::Word word = word_of(id);
  word.mutable_resend_request()->set_flow(flow);
  word.mutable_resend_request()->set_first(missing.first);
  word.mutable_resend_request()->set_last(missing.last);
  return word;
}

using StepFlow = FlowReceiver<v1::StepMessage>;

/// Puts a message into its flow, and counts it. Returns the messages to ask for.
[[nodiscard]] inline std::optional<MissingRange> put_into(StepFlow& flow, v1::StepMessage message,
                                                          FlowStats& stats) {
  const std::uint64_t sequence = message.sequence();
  const std::uint64_t size_bytes = message.payload().size();
  switch (flow.take(sequence, std::move(message), size_bytes)) {
    case StepFlow::Arrival::doubled:
      ++stats.doubled;
      break;
    case StepFlow::Arrival::early:
      ++stats.parked;
      return flow.missing_before_parked();
    case StepFlow::Arrival::in_order:
    case StepFlow::Arrival::too_early:
      break;
  }
  return std::nullopt;
}

/// Messages that arrived in sockets.
struct TakenMessages {
  std::vector<v1::StepMessage> messages;
  std::uint64_t refused = 0;  ///< of another run or roster, or malformed
};

/// The most that one look takes from them: a peer that fills them delays no caller beyond its
/// deadline, and makes it keep no more than this.
inline constexpr std::size_t kTakenAtOnce = 256;
inline constexpr std::uint64_t kTakenBytesAtOnce = std::uint64_t{64} << 20;

/// Empties them, in as many calls as needed.
template <class Sockets>
[[nodiscard]] TakenMessages take_some(Sockets& sockets, const RosterId& expected) {
  TakenMessages taken;
  std::uint64_t taken_bytes = 0;
  for (std::size_t i = 0; i < kTakenAtOnce && taken_bytes < kTakenBytesAtOnce; ++i) {
    const auto bytes = sockets.take();
    if (!bytes) break;
    taken_bytes += bytes->size_bytes();
    if (auto message = decode(bytes->bytes(), expected); message.has_value()) {
      taken.messages.push_back(*std::move(message));
    } else {
      ++taken.refused;
    }
  }
  return taken;
}

}  // namespace tendon::v0::detail
