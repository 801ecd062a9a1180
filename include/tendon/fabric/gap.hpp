// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// Why samples are missing.
enum class GapReason : std::uint8_t {
  overflow,     ///< the subscriber was behind by more than the publisher's history
  history,      ///< the publisher dropped its history early: `publish_bytes` was short
  reconnect,    ///< published while there was no link; they left the history meanwhile
  expired,      ///< they arrived, older than SubscriberOptions::max_age
  schema,       ///< they arrived, and do not fit SubscriberOptions::schema
  undecodable,  ///< they arrived, and their values, schema or header could not be read
  died,  ///< the publisher died, was lost or refused this subscriber before they left: see Ended
};
TENDON_WORDS(GapReason, overflow, history, reconnect, expired, schema, undecodable, died);

/// The samples of one publisher that this subscriber will not get. The list is exact, from the
/// first sample that it has seen of this publisher. A publisher is one {incarnation, entity} of a
/// node.
struct TENDON_API Gap {
  std::string publisher;          ///< the node, as in Sample::publisher
  std::uint64_t incarnation = 0;  ///< of the node: when its Context was made [ns of wall clock]
  std::uint64_t first = 0;        ///< sequence
  std::uint64_t last = 0;         ///< sequence, not less than `first`
  GapReason reason = GapReason::overflow;
  std::uint32_t entity = 0;  ///< as in Sample::entity

  [[nodiscard]] std::uint64_t count() const noexcept { return last - first + 1; }
  friend bool operator==(const Gap&, const Gap&) = default;
  /// "samples 18 to 40 of vision are missing (overflow)".
  friend TENDON_API std::ostream& operator<<(std::ostream& out, const Gap& gap);
};

}  // namespace v0
}  // namespace tendon
