// SPDX-License-Identifier: Apache-2.0
// docs/protocol.md, "Opening", has these bytes.
#include "channel/open.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <string>

#include "core/text.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

std::string hex(const detail::Descriptor& descriptor) {
  return detail::to_hex(std::as_bytes(std::span(&descriptor, 1)));
}

detail::Descriptor open_of(std::uint32_t pipe, const std::optional<detail::Window>& window) {
  static constexpr std::array<std::byte, 16> kTicket{};
  return detail::opening_of(kTicket, window).descriptor(pipe);
}

TEST(Open, HasTheBytesOfTheProtocol) {
  EXPECT_EQ(hex(open_of(3, detail::Window::said(256, 64 << 20))),
            "0c00100003000000"
            "0000000400000000"
            "0000000000010000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
}

// The bytes of version 1.0: the peer has not announced that it knows more.
TEST(Open, SaysNothingOfAWindowThatThePeerDoesNotKnow) {
  EXPECT_EQ(hex(open_of(3, std::nullopt)),
            "0c00100003000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
}

TEST(Open, IsReadAsItWasSaid) {
  const detail::Window said = detail::Window::said(16, 1000);
  const auto read = detail::window_of(open_of(1, said));
  ASSERT_TRUE(succeeds(read));
  EXPECT_EQ(*read, said);
  const auto constant = detail::window_of(open_of(1, std::nullopt));
  ASSERT_TRUE(succeeds(constant));
  EXPECT_EQ(*constant, detail::Window{});
  for (const auto& [messages, bytes] : {std::pair{0u, 10ull}, std::pair{10u, 0ull}}) {
    EXPECT_TRUE(fails_with(
        detail::window_of({.kind = detail::MessageKind::open, .sequence = bytes, .tag = messages}),
        ErrorCode::protocol_violation, "window"));
  }
}

}  // namespace
}  // namespace tendon::test
