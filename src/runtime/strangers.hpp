// SPDX-License-Identifier: Apache-2.0
// Every place that turns away a connection, or a peer before it is known, says so through these:
// one pace for all of a process.
#pragma once

#include <string_view>
#include <tendon/core/export.hpp>

#include "observe/stranger_log.hpp"
#include "transport/link.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

class ContextCore;

/// The far end of a stream, while that has its descriptor.
[[nodiscard]] Stranger stranger_at(const ByteStream& stream);
/// A peer that has a link, and is no member of what it comes for.
[[nodiscard]] TENDON_API Stranger stranger_at(const Link& link);

/// Logs that it was turned away, with StrangerLog's pace; a count that is due later is told by the
/// timers of `context`, or by the next refusal where that is null.
TENDON_API void refuse_stranger(ContextCore* context, std::string_view where,
                                const Stranger& stranger, std::string_view why);
/// Logs a count that is not told yet, at the end of who would tell it.
void tell_refused_strangers();

}  // namespace tendon::v0::detail
