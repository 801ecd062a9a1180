// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/error.hpp>
#include <vector>

#include "channel/kept_body.hpp"
#include "fabric/calls/call_channel.hpp"
#include "fabric/keys/publisher_id.hpp"

namespace tendon::v0::detail {

/// The state of a call at one responder:
///
///   dialling -> asked -> arrived -> done
///                                -> failed
///                     -> failed
struct CallPart {
  enum class State : std::uint8_t { dialling, asked, arrived, done, failed };
  PublisherId responder;
  State state = State::dialling;
  std::string node{};  ///< empty: not known yet
  std::shared_ptr<CallChannel> channel{};
  std::optional<CallChannel::Received> received{};
  std::optional<Error> error{};  ///< the error, or that of the last attempt while dialling
};
/// A call for which a thread waits.
struct OpenCall {
  CallWord word;
  std::shared_ptr<const KeptBody> request;
  std::vector<CallPart> parts;
  bool moved = false;  ///< since its thread looked
};

}  // namespace tendon::v0::detail
