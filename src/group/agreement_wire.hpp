// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/core/bytes.hpp>
#include <vector>

#include "group/agreement.hpp"

namespace tendon::inline v0::detail {

/// An AgreementMessage as the body of an envelope: little endian, of one length for all kinds.
[[nodiscard]] std::vector<std::byte> encode(const AgreementMessage& message);
/// nullopt for another length or an unknown kind.
[[nodiscard]] std::optional<AgreementMessage> decode_agreement(Bytes bytes);

}  // namespace tendon::inline v0::detail
