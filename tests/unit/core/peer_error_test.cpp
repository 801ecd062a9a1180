// SPDX-License-Identifier: Apache-2.0
#include "core/peer_error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tendon::detail {
namespace {

std::set<ErrorCode> allowed(PeerSays where) {
  std::set<ErrorCode> codes;
  for (const ErrorInfo& row : error_table())
    if (code_from_peer(static_cast<std::uint32_t>(row.code), where) == row.code)
      codes.insert(row.code);
  return codes;
}

// The lists again: an accidental change of the table fails here.
TEST(PeerError, TheCodesOfARefusal) {
  using enum ErrorCode;
  EXPECT_EQ(
      allowed(PeerSays::refusal),
      (std::set{not_supported, unreachable, permission_denied, version_mismatch, protocol_violation,
                server_busy, resource_exhausted, limit_exceeded, too_many_open_files}));
}

TEST(PeerError, TheCodesOfTheEndOfAPipe) {
  using enum ErrorCode;
  EXPECT_EQ(allowed(PeerSays::pipe),
            (std::set{invalid_argument, not_supported, cancelled, unreachable, permission_denied,
                      version_mismatch, protocol_violation, server_busy, handler_failed,
                      resource_exhausted, message_too_large, limit_exceeded, too_many_open_files,
                      schema_mismatch, not_found, internal}));
}

TEST(PeerError, TheCodesOfTheEndOfAnEpoch) {
  using enum ErrorCode;
  EXPECT_EQ(allowed(PeerSays::epoch),
            (std::set{timeout, cancelled, protocol_violation, peer_lost, group_aborted, mismatch}));
}

TEST(PeerError, NoNumberOutsideTheTableIsACode) {
  for (const PeerSays where : {PeerSays::refusal, PeerSays::pipe, PeerSays::epoch}) {
    EXPECT_FALSE(code_from_peer(0, where));
    EXPECT_FALSE(code_from_peer(9999, where));
    // Its lower 16 bits equal the number of protocol_violation.
    EXPECT_FALSE(code_from_peer(0x10000 + 106, where));
  }
}

}  // namespace
}  // namespace tendon::detail
