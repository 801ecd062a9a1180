// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/peer_question.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tendon/session/limits.hpp>
#include <variant>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;

constexpr ContextId kAsker{{std::byte{1}, std::byte{2}}};

CableQuestion cable_question() {
  return {.asker = kAsker,
          .connection = {std::byte{3}},
          .half_key = {std::byte{4}},
          .lane = Lane::bulk};
}

DialBackQuestion dial_question() {
  return {{.domain = "brain",
           .name = "motor",
           .context = kAsker,
           .start = 7,
           .unix_on = {},
           .addresses = {Address::parse("10.0.0.7:7450").value()}}};
}

std::string text_of(const Storage& storage) { return std::string(as_text(storage.bytes())); }
Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(PeerQuestions, SayWhatWasAsked) {
  for (const PeerQuestion& question :
       {PeerQuestion(cable_question()), PeerQuestion(dial_question())}) {
    const Storage said = encode(question).value();
    EXPECT_EQ(read_peer_question(said.bytes()).value(), question);
  }
}

TEST(PeerQuestions, HaveTheseBytes) {
  EXPECT_EQ(to_hex(encode(PeerQuestion(cable_question())).value().bytes()),
            "0201" + std::string(28, '0') +      // kind, lane, reserved
                "0102" + std::string(28, '0') +  // asker
                "03" + std::string(30, '0') +    // connection
                "04" + std::string(30, '0'));    // half of the key
  EXPECT_EQ(text_of(encode(PeerQuestion(dial_question())).value()),
            "\x01@tendon/brain/node/motor/0102" + std::string(28, '0') + "/7/10.0.0.7:7450");
}

TEST(PeerQuestions, OfStrangersAreChecked) {
  const auto refuses = [](const std::string& bytes) {
    return fails_with(read_peer_question(bytes_of(bytes)), ErrorCode::protocol_violation);
  };
  const std::string cable = text_of(encode(PeerQuestion(cable_question())).value());
  EXPECT_TRUE(refuses(""));
  EXPECT_TRUE(refuses("\x03"));
  EXPECT_TRUE(refuses(cable + 'x'));
  EXPECT_TRUE(refuses(cable.substr(1)));
  for (const std::size_t zeroed : {16u, 32u, 48u}) {
    std::string other = cable;
    other.replace(zeroed, 16, 16, '\0');
    EXPECT_TRUE(refuses(other)) << zeroed;
  }
  std::string lane = cable;
  lane[1] = 2;
  EXPECT_TRUE(refuses(lane));
  std::string reserved = cable;
  reserved[15] = 1;
  EXPECT_TRUE(refuses(reserved));
  const std::string node = "\x01@tendon/brain/node/motor/0102" + std::string(28, '0') + "/7/";
  EXPECT_TRUE(refuses(node + "none")) << "no address to dial";
  EXPECT_TRUE(refuses(node + "0.0.0.0:7450"));
  EXPECT_TRUE(refuses(node + "example.org:7450"));
  EXPECT_TRUE(refuses("\x01@tendon/brain/sub/0102" + std::string(28, '0') + "/1/any/h1o1p1/a"));
}

TEST(PeerAnswers, SayWhatWasAnswered) {
  for (const PeerAnswer& answer :
       {PeerAnswer{}, PeerAnswer{.why_not = {}, .half_key = {std::byte{5}}},
        PeerAnswer{.why_not = "no", .half_key = {}}}) {
    EXPECT_EQ(read_peer_answer(encode(answer).value().bytes()).value(), answer);
  }
  const PeerAnswer wordy{.why_not = std::string(2 * kMaxReasonBytes, 'x'), .half_key = {}};
  EXPECT_EQ(read_peer_answer(encode(wordy).value().bytes()).value().why_not.size(),
            kMaxReasonBytes);
}

TEST(PeerAnswers, OfStrangersAreChecked) {
  for (const std::string& bytes :
       {std::string(), std::string("\x02"), std::string("\x01"), std::string("\x01\x1b[2J"),
        std::string("\0short", 6), std::string(17, '\0'),
        "\x01" + std::string(kMaxReasonBytes + 1, 'x')}) {
    EXPECT_TRUE(fails_with(read_peer_answer(bytes_of(bytes)), ErrorCode::protocol_violation));
  }
}

}  // namespace
}  // namespace tendon::test
