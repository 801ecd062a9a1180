// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/core/bytes.hpp>
#include <vector>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// An AgreementMessage as the body of an envelope: little endian, of one length for all kinds.
[[nodiscard]] std::vector<std::byte> encode(const AgreementMessage& message);
/// nullopt for another length, an unknown kind, or a place outside a group of `places`.
[[nodiscard]] std::optional<AgreementMessage> decode_agreement(Bytes bytes, std::size_t places);

}  // namespace tendon::v0::detail
