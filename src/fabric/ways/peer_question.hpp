// SPDX-License-Identifier: Apache-2.0
// What one Context asks another one through Zenoh, where it has no link to it: docs/protocol.md,
// "Routed links".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <variant>

#include "fabric/keys/announcement.hpp"
#include "runtime/connect.hpp"
#include "session/nonce128.hpp"

namespace tendon::v0::detail {

/// Dial me.
struct DialBackQuestion {
  NodeAnnouncement asker;  ///< with at least one address

  friend bool operator==(const DialBackQuestion&, const DialBackQuestion&) = default;
};

/// Take the other end of a cable.
struct CableQuestion {
  ContextId asker;        ///< not none
  Nonce128 connection{};  ///< a new one, not none
  Nonce128 half_key{};    ///< not none
  Lane lane = Lane::control;

  friend bool operator==(const CableQuestion&, const CableQuestion&) = default;
};

using PeerQuestion = std::variant<DialBackQuestion, CableQuestion>;

/// That it was done, with the other half of a key for a cable; or why it was not.
struct PeerAnswer {
  std::string why_not;  ///< empty: it was done
  Nonce128 half_key{};  ///< of a cable

  friend bool operator==(const PeerAnswer&, const PeerAnswer&) = default;
};

[[nodiscard]] Result<Storage> encode(const PeerQuestion& question);
[[nodiscard]] Result<Storage> encode(const PeerAnswer& answer);

// Read what anybody may have written. Errors: protocol_violation.
[[nodiscard]] Result<PeerQuestion> read_peer_question(Bytes bytes);
[[nodiscard]] Result<PeerAnswer> read_peer_answer(Bytes bytes);

/// Where a Context is asked. Errors: those of name_to_chunk().
[[nodiscard]] Result<KeyExpression> ask_key(const std::string& domain, const ContextId& context);
/// Where it answers, whatever the domain.
[[nodiscard]] Result<KeyExpression> answer_key(const ContextId& self);

}  // namespace tendon::v0::detail
