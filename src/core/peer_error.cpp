// SPDX-License-Identifier: Apache-2.0
#include "core/peer_error.hpp"

#include <array>

namespace tendon::v0::detail {
namespace {

struct Row {
  ErrorCode code;
  unsigned said_by_peer;
};

// The words of the column.
enum Word : unsigned {
  never = 0,
  refusal = static_cast<unsigned>(PeerSays::refusal),
  pipe = static_cast<unsigned>(PeerSays::pipe),
  epoch = static_cast<unsigned>(PeerSays::epoch),
};

constexpr std::array kRows = {
#define TENDON_ERROR(number, name, remedy, exit_code, python, builtin, said_by_peer, summary) \
  Row{ErrorCode::name, said_by_peer},
#include <tendon/core/error_codes.def>
#undef TENDON_ERROR
};

}  // namespace

std::optional<ErrorCode> code_from_peer(std::uint32_t number, PeerSays where) {
  for (const Row& row : kRows) {
    if (static_cast<std::uint32_t>(row.code) != number) continue;
    if ((row.said_by_peer & static_cast<unsigned>(where)) == 0) return std::nullopt;
    return row.code;
  }
  return std::nullopt;
}

}  // namespace tendon::v0::detail
