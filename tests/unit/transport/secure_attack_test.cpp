// SPDX-License-Identifier: Apache-2.0
// An attacker on the path of a secure stream, who has all bytes of both directions and no key.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "support/memory_stream.hpp"
#include "support/secure/holders.hpp"
#include "transport/stream/secure_stream.hpp"

namespace tendon::test {
namespace {

using detail::SecureStream;
using detail::SecureStreamOptions;
using detail::StreamIo;
using Said = std::vector<std::byte>;

constexpr auto kDials = detail::secure::TlsHandshake::Role::client;
constexpr auto kListens = detail::secure::TlsHandshake::Role::server;

Said joined(std::initializer_list<Bytes> parts) {
  Said all;
  for (const Bytes part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// One end, whose stream leads to the attacker.
class EndOnPath {
 public:
  explicit EndOnPath(detail::secure::TlsHandshake::Role role, SecureStreamOptions options = {}) {
    auto below = MemoryStream::make_pair({});
    options.role = role;
    if (!options.credentials) options.credentials = holder_of_key("fleet", 'a');
    end_ = SecureStream::make(std::move(below.first), std::move(options)).value();
    path_ = std::move(below.second);
  }

  /// Delivers `bytes`, and returns the bytes that it sends in response.
  Said take(Bytes bytes) {
    put(bytes);
    (void)end_->write({});
    return taken();
  }
  /// Sends `text`, and returns the resulting bytes.
  Said say(std::string text) {
    const iovec piece{text.data(), text.size()};
    (void)end_->write({&piece, 1});
    return taken();
  }
  Said say_end() {
    end_->end_output();
    return taken();
  }
  /// Delivers `bytes`, and returns the text that it reads, up to the end or an error.
  std::string hear(Bytes bytes) {
    put(bytes);
    std::string heard;
    std::array<char, 4096> part{};
    const iovec room{part.data(), part.size()};
    for (;;) {
      const StreamIo io = end_->read({&room, 1});
      state_ = io.state;
      if (state_ != StreamIo::State::moved) return heard;
      heard.append(part.data(), io.bytes);
    }
  }
  void cut() { path_->end_output(); }
  [[nodiscard]] bool has_session() const { return end_->session() != nullptr; }
  /// Valid after hear().
  [[nodiscard]] StreamIo::State state() const { return state_; }
  [[nodiscard]] testing::AssertionResult lost_by(ErrorCode code) const {
    const auto why = end_->why_lost();
    if (state_ != StreamIo::State::lost) return testing::AssertionFailure() << "it is not lost";
    if (!why) return testing::AssertionFailure() << "it is lost without a reason";
    if (why->code == code) return testing::AssertionSuccess();
    return testing::AssertionFailure() << why->message();
  }

 private:
  void put(Bytes bytes) {
    while (!bytes.empty()) {
      const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
      const StreamIo io = path_->write({&piece, 1});
      if (io.state != StreamIo::State::moved) return;
      bytes = bytes.subspan(io.bytes);
    }
  }
  Said taken() {
    Said said;
    std::array<std::byte, 4096> part{};
    const iovec room{part.data(), part.size()};
    for (;;) {
      const StreamIo io = path_->read({&room, 1});
      if (io.state != StreamIo::State::moved) return said;
      said.insert(said.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    }
  }

  std::unique_ptr<SecureStream> end_;
  std::unique_ptr<MemoryStream> path_;
  StreamIo::State state_ = StreamIo::State::later;
};

/// Two ends that have a session, and the bytes of their handshake.
struct Conversation {
  EndOnPath client;
  EndOnPath server{kListens};
  Said hello;
  Said flight;
  Said finished;

  explicit Conversation(SecureStreamOptions of_client = {})
      : client(kDials, std::move(of_client)),
        hello(client.take({})),
        flight(server.take(hello)),
        finished(client.take(flight)) {
    (void)server.take(finished);
    EXPECT_TRUE(client.has_session() && server.has_session());
  }
};

const std::string kFirst(60, '1');
const std::string kSecond(60, '2');
const std::string kThird(60, '3');

TEST(SecurePath, RecordsThatAreMovedAreRefused) {
  struct Attack {
    std::string name;
    std::string heard;  // before the attack is detected
    std::function<Said(const Said& one, const Said& two, const Said& three, const Said& back,
                       const Said& other_lane)>
        delivered;
  };
  const std::vector<Attack> attacks{
      {"replayed", kFirst,
       [](auto& one, auto&, auto&, auto&, auto&) {
         return joined({one, one});
       }},
      {"replayed later", kFirst + kSecond,
       [](auto& one, auto& two, auto&, auto&, auto&) {
         return joined({one, two, one});
       }},
      {"reordered", "",
       [](auto& one, auto& two, auto&, auto&, auto&) {
         return joined({two, one});
       }},
      {"left out", kFirst,
       [](auto& one, auto&, auto& three, auto&, auto&) {
         return joined({one, three});
       }},
      {"reflected", kFirst,
       [](auto& one, auto&, auto&, auto& back, auto&) {
         return joined({one, back});
       }},
      {"of another lane", kFirst,
       [](auto& one, auto&, auto&, auto&, auto& lane) {
         return joined({one, lane});
       }},
      {"spliced with the next", "",
       [](auto& one, auto& two, auto&, auto&, auto&) {
         return joined({Bytes(one).first(40), Bytes(two).subspan(40)});
       }},
      {"spliced with another lane's", "",
       [](auto& one, auto&, auto&, auto&, auto& lane) {
         return joined({Bytes(one).first(40), Bytes(lane).subspan(40)});
       }},
      {"shortened", "",
       [](auto& one, auto& two, auto&, auto&, auto&) {
         // One byte of the next record may equal the missing one.
         return joined({Bytes(one).first(one.size() - 3), two});
       }},
      {"plaintext", kFirst,
       [](auto& one, auto&, auto&, auto&, auto&) {
         return joined({one, as_bytes(std::string_view("\x17\x03\x03\x00\x05hello", 10))});
       }},
  };
  for (const Attack& attack : attacks) {
    SCOPED_TRACE(attack.name);
    Conversation here;
    Conversation lane;
    const Said one = here.client.say(kFirst);
    const Said two = here.client.say(kSecond);
    const Said three = here.client.say(kThird);
    const Said back = here.server.say(kFirst);
    const Said of_lane = lane.client.say(kFirst);
    EXPECT_EQ(here.server.hear(attack.delivered(one, two, three, back, of_lane)), attack.heard);
    EXPECT_TRUE(here.server.lost_by(ErrorCode::protocol_violation));
  }
}

// Nothing was changed, which shows that the attacks above are refused for their changes.
TEST(SecurePath, RecordsAsTheyWereSentAreRead) {
  Conversation here;
  const Said said = joined({here.client.say(kFirst), here.client.say(kSecond)});
  EXPECT_EQ(here.server.hear(said), kFirst + kSecond);
  EXPECT_EQ(here.server.hear(here.client.say_end()), "");
  EXPECT_EQ(here.server.state(), StreamIo::State::ended);
}

TEST(SecurePath, AFlippedBitAnywhereInARecordIsRefused) {
  const std::size_t record_bytes = Conversation().client.say(kFirst).size();
  for (std::size_t at = 0; at < record_bytes; ++at) {
    Conversation here;
    Said said = here.client.say(kFirst);
    ASSERT_EQ(said.size(), record_bytes);
    said[at] ^= static_cast<std::byte>(1u << (at % 8));
    // A record with a larger length field needs as many bytes in the end.
    const Said more = here.client.say(std::string(20'000, 'x'));
    EXPECT_EQ(here.server.hear(joined({said, more})), "") << "byte " << at;
    EXPECT_TRUE(here.server.lost_by(ErrorCode::protocol_violation)) << "byte " << at;
  }
}

// A cut stream never looks like one that ended in order, wherever it is cut.
TEST(SecurePath, CutAtEachByteThePeerIsLost) {
  std::size_t all_bytes = 1;
  for (std::size_t cut = 0; cut <= all_bytes; ++cut) {
    EndOnPath client(kDials);
    EndOnPath server(kListens);
    std::size_t left = cut;
    all_bytes = 0;
    const auto cut_off = [&](const Said& said) {
      all_bytes += said.size();
      const Bytes kept = Bytes(said).first(std::min(left, said.size()));
      left -= kept.size();
      return Said(kept.begin(), kept.end());
    };
    const Said flight = server.take(cut_off(client.take({})));
    const Said finished = cut_off(client.take(flight));
    std::string heard = server.hear(finished);
    if (client.has_session()) {
      heard += server.hear(cut_off(client.say(kFirst)));
      heard += server.hear(cut_off(client.say_end()));
    } else {
      all_bytes = cut + 1;  // there is more than this hello
    }
    if (cut == all_bytes) {
      EXPECT_EQ(server.state(), StreamIo::State::ended);
      EXPECT_EQ(heard, kFirst);
      break;
    }
    server.cut();
    heard += server.hear({});
    EXPECT_TRUE(server.lost_by(ErrorCode::peer_lost)) << "behind byte " << cut;
    EXPECT_TRUE(heard.empty() || heard == kFirst);
  }
}

TEST(SecurePath, CutAtEachByteOfTheAnswerTheListenerIsLost) {
  const std::size_t flight_bytes = Conversation().flight.size();
  for (std::size_t cut = 0; cut < flight_bytes; ++cut) {
    EndOnPath client(kDials);
    EndOnPath server(kListens);
    const Said flight = server.take(client.take({}));
    EXPECT_EQ(client.hear(Bytes(flight).first(std::min(cut, flight.size()))), "");
    client.cut();
    EXPECT_EQ(client.hear({}), "");
    EXPECT_TRUE(client.lost_by(ErrorCode::peer_lost)) << "behind byte " << cut;
  }
}

TEST(SecurePath, AFlightOfAnotherSessionIsRefused) {
  const Conversation before;
  EndOnPath client(kDials);
  (void)client.take({});
  EXPECT_EQ(client.hear(before.flight), "");
  EXPECT_TRUE(client.lost_by(ErrorCode::protocol_violation));
  EndOnPath server(kListens);
  // Only the hello may be replayed: the attacker gains nothing but an answer.
  (void)server.take(before.hello);
  EXPECT_EQ(server.hear(before.finished), "");
  EXPECT_TRUE(server.lost_by(ErrorCode::protocol_violation));
  EXPECT_FALSE(server.has_session());
}

TEST(SecurePath, AHelloThatIsSentBackIsRefused) {
  EndOnPath client(kDials);
  const Said hello = client.take({});
  EXPECT_EQ(client.hear(hello), "");
  EXPECT_TRUE(client.lost_by(ErrorCode::protocol_violation));
}

TEST(SecurePath, PlaintextIsRefusedByEitherEnd) {
  const auto hello = as_bytes(std::string_view("TNDN\x00\x00\x00\x00 and what follows", 25));
  EndOnPath client(kDials);
  (void)client.take({});
  EXPECT_EQ(client.hear(hello), "");
  EXPECT_TRUE(client.lost_by(ErrorCode::protocol_violation));
  EndOnPath server(kListens);
  EXPECT_EQ(server.hear(hello), "");
  EXPECT_TRUE(server.lost_by(ErrorCode::protocol_violation));
}

// The attacker has the keys: a member that wants to keep our processor busy.
TEST(SecurePath, AFloodOfKeyUpdatesIsRefused) {
  SecureStreamOptions often;
  often.limits.records = 2;
  Conversation here(often);
  Said said;
  for (int n = 0; n < 200; ++n) {
    const Said more = here.client.say("x");
    said.insert(said.end(), more.begin(), more.end());
  }
  const detail::secure::RecordLimits limits;
  EXPECT_LE(here.server.hear(said).size(), 2 * limits.updates);
  EXPECT_TRUE(here.server.lost_by(ErrorCode::protocol_violation));
}

}  // namespace
}  // namespace tendon::test
