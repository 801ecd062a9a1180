// SPDX-License-Identifier: Apache-2.0
// Names that people choose, as one chunk of a key.
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/fabric/limits.hpp>

namespace tendon::v0::detail {

/// The first chunk of every key that is Tendon's own and no topic.
inline constexpr std::string_view kOwnChunk = "@tendon";

/// `name` with %XX for each of "%/*$#?" and for '@' at its front, so that it is one chunk that
/// wildcards match. A name is UTF-8 without hidden characters, so that two different names never
/// look alike because of invisible ones. Errors: invalid_argument; limit_exceeded when the chunk
/// has more than kMaxNameChunkBytes.
[[nodiscard]] Result<std::string> name_to_chunk(std::string_view name);

/// The name whose name_to_chunk() is this chunk. Another spelling is refused, so that one name has
/// one key. Errors: invalid_argument, limit_exceeded.
[[nodiscard]] Result<std::string> name_from_chunk(std::string_view chunk);

}  // namespace tendon::v0::detail
