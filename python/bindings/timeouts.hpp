// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace tendon::python {

/// The longest wait of a call if neither it nor its Context names a timeout.
inline constexpr std::chrono::seconds kTimeout{30};
/// The same for collectives, whose timeout ends the epoch of all members:
/// docs/collectives.md#how-long-a-collective-waits
inline constexpr std::chrono::seconds kCollectiveTimeout{1800};
/// After this time a line of the log names the members that a collective waits for.
inline constexpr std::chrono::seconds kTellAfter{10};

}  // namespace tendon::python
