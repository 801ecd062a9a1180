// SPDX-License-Identifier: Apache-2.0
// What both ends of a flow do when something was lost: say how far they are, ask, send again.
#pragma once

#include <google/protobuf/map.h>

#include <cstdint>
#include <vector>

#include "control/flow_receiver.hpp"
#include "control/flow_sender.hpp"
#include "control/step_message.hpp"
#include "control/worker_pipe.hpp"

namespace tendon::v0::detail {

/// The number that a heartbeat says for a flow, 0 when it says none.
[[nodiscard]] inline std::uint64_t number_of(
    const google::protobuf::Map<std::uint32_t, std::uint64_t>& said, v1::Flow flow) {
  const auto found = said.find(static_cast<std::uint32_t>(flow));
  return found == said.end() ? 0 : found->second;
}

/// Asks for what is missing. `word` names run and roster, as below.
inline void ask_for(const MissingRange& missing, v1::Flow flow, v1::Word word, WorkerPipe& pipe) {
  word.mutable_resend_request()->set_flow(flow);
  word.mutable_resend_request()->set_first(missing.first);
  word.mutable_resend_request()->set_last(missing.last);
  pipe.send(word);
}

/// Sends again what was asked for, or says from where on there is something. Returns how many
/// messages: a peer that reads too slowly gets the rest when it asks for it again.
inline std::uint64_t send_again(const FlowSender& sender, const v1::ResendRequest& request,
                                const v1::Word& word, WorkerPipe& pipe) {
  if (request.first() < sender.first_kept()) {
    v1::Word reply = word;
    reply.mutable_not_retained()->set_flow(request.flow());
    reply.mutable_not_retained()->set_first(sender.first_kept());
    pipe.send(reply);
    return 0;
  }
  const std::uint64_t last = request.last() == 0 ? sender.sent() : request.last();
  std::uint64_t count = 0;
  for (const FlowSender::Kept& message : sender.between(request.first(), last)) {
    v1::Word reply = word;
    if (!reply.mutable_resent()->ParseFromString(*message)) continue;
    if (!pipe.send_if_room(reply)) break;
    ++count;
  }
  return count;
}

/// What has come into sockets.
struct TakenMessages {
  std::vector<v1::StepMessage> messages;
  std::uint64_t refused = 0;  ///< not of this run and roster, or malformed
};

/// The most that one look takes out of them: a peer that fills them keeps no caller beyond its
/// deadline, and makes it keep no more than this.
inline constexpr std::size_t kTakenAtOnce = 256;
inline constexpr std::uint64_t kTakenBytesAtOnce = std::uint64_t{64} << 20;

/// Empties them, in as many calls as that needs.
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
