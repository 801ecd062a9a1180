// SPDX-License-Identifier: Apache-2.0
// Reports of refused connections, and of peers refused before they are known. All refusals of a
// process share one pace.
#pragma once

#include <string_view>
#include <tendon/core/export.hpp>

#include "observe/stranger_log.hpp"
#include "transport/link.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

class ContextCore;

/// The far end of a stream, while the stream has its descriptor.
[[nodiscard]] Stranger stranger_at(const ByteStream& stream);
/// A peer that has a link, but is no member of the group that it wants to join.
[[nodiscard]] TENDON_API Stranger stranger_at(const Link& link);

/// Logs the refusal at StrangerLog's pace. A count that is due later is logged by the timers of
/// `context`, or by the next refusal if it is null.
TENDON_API void refuse_stranger(ContextCore* context, std::string_view where,
                                const Stranger& stranger, std::string_view why);
/// Logs a pending count when its reporter ends.
void tell_refused_strangers();

}  // namespace tendon::v0::detail
