// SPDX-License-Identifier: Apache-2.0
// The words of a subscriber that opens a channel: docs/protocol.md, "Subscriptions".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <type_traits>

namespace tendon::v0::detail {

/// The header of an `open` of purpose `fabric`. Little endian; a newer peer may append fields,
/// which are skipped.
struct SubscriptionRequest {
  std::uint32_t entity = 0;  ///< the publisher, as its announcement names it
  /// The subscriber, likewise; 0: unknown.
  std::uint32_t subscriber = 0;
  /// The last sample that this subscriber has seen of the publisher, and its incarnation; both
  /// zero: none.
  std::uint64_t seen_incarnation = 0;
  std::uint64_t seen_sequence = 0;
  std::uint64_t seen_stamp = 0;  ///< of that sample
  /// Samples whose stamps are nearer than this are left out [ns]; 0: none.
  std::uint64_t period_ns = 0;

  friend bool operator==(const SubscriptionRequest&, const SubscriptionRequest&) = default;
};
static_assert(sizeof(SubscriptionRequest) == 40 &&
              std::is_trivially_copyable_v<SubscriptionRequest>);

/// Errors: protocol_violation.
[[nodiscard]] inline Result<SubscriptionRequest> read_subscription_request(Bytes said) {
  SubscriptionRequest request;
  if (said.size() < sizeof request) {
    return Error{ErrorCode::protocol_violation, "publisher.subscribe",
                 "a subscription was opened with " + std::to_string(said.size()) +
                     " bytes beside its purpose, fewer than " + std::to_string(sizeof request)};
  }
  std::memcpy(&request, said.data(), sizeof request);
  return request;
}

}  // namespace tendon::v0::detail
