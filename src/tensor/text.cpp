// SPDX-License-Identifier: Apache-2.0
#include "tensor/text.hpp"

namespace tendon::v0::detail {
std::string quote_text(std::string_view text) {
  constexpr std::size_t kMaxBytes = 128;
  std::string out = "'";
  std::size_t used = 0;
  while (used < text.size() && used < kMaxBytes) {
    const std::string_view rest = text.substr(used);
    const std::size_t count = character_bytes(rest);
    if (count == 0 || is_hidden(rest, count)) {
      for (std::size_t i = 0; i < (count == 0 ? 1 : count); ++i) out += escaped_byte(rest[i]);
    } else {
      out += rest.substr(0, count);
    }
    used += count == 0 ? 1 : count;
  }
  out += used < text.size() ? "...'" : "'";
  return out;
}

}  // namespace tendon::v0::detail
