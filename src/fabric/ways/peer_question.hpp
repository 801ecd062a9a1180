// SPDX-License-Identifier: Apache-2.0
// The questions that one Context asks another through Zenoh if it has no link to it:
// docs/protocol.md, "Routed links".
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

/// Asks the peer to dial the asker.
struct DialBackQuestion {
  NodeAnnouncement asker;  ///< with at least one address

  friend bool operator==(const DialBackQuestion&, const DialBackQuestion&) = default;
};

/// Asks the peer to take the other end of a cable.
struct CableQuestion {
  ContextId asker;        ///< not none
  Nonce128 connection{};  ///< a new one, not none
  Nonce128 half_key{};    ///< not none
  Lane lane = Lane::control;

  friend bool operator==(const CableQuestion&, const CableQuestion&) = default;
};

using PeerQuestion = std::variant<DialBackQuestion, CableQuestion>;

/// The answer: the question was done, for a cable with the other half of a key; or why it was not.
struct PeerAnswer {
  std::string why_not;  ///< empty: it was done
  Nonce128 half_key{};  ///< for a cable

  friend bool operator==(const PeerAnswer&, const PeerAnswer&) = default;
};

[[nodiscard]] Result<Storage> encode(const PeerQuestion& question);
[[nodiscard]] Result<Storage> encode(const PeerAnswer& answer);

// These read what anybody may have written. Errors: protocol_violation.
[[nodiscard]] Result<PeerQuestion> read_peer_question(Bytes bytes);
[[nodiscard]] Result<PeerAnswer> read_peer_answer(Bytes bytes);

/// Returns the key on which a Context is asked. Errors: those of name_to_chunk().
[[nodiscard]] Result<KeyExpression> ask_key(const std::string& domain, const ContextId& context);
/// Returns the key on which it answers, whatever the domain.
[[nodiscard]] Result<KeyExpression> answer_key(const ContextId& self);

}  // namespace tendon::v0::detail
