// SPDX-License-Identifier: Apache-2.0
#include "secure/record_layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "records.hpp"

namespace {

using namespace tendon::detail::secure;
using namespace tendon::test;
using tendon::Bytes;
using tendon::ErrorCode;
using tendon::MutableBytes;
using State = RecordLayer::Opened::State;

// Secrets of the two directions.
constexpr int kThere = 1;
constexpr int kBack = 2;

class Records : public EachSealer {
 protected:
  [[nodiscard]] RecordLayer sender(const RecordLimits& limits = {}) const {
    return end_of(GetParam(), kThere, kBack, limits);
  }
  [[nodiscard]] RecordLayer receiver(const RecordLimits& limits = {}) const {
    return end_of(GetParam(), kBack, kThere, limits);
  }
  // A record that no RecordLayer writes, as the first of the sender.
  [[nodiscard]] Buffer record_of(ContentType type, Bytes content) const {
    auto protection = RecordProtection::make(secret_of(kThere), GetParam()).value();
    Buffer record(content.size() + kRecordOverheadBytes);
    const std::span<const Bytes> pieces(&content, content.empty() ? 0 : 1);
    record.resize(protection.seal(type, pieces, record).value());
    return record;
  }
  // The alert with which an end that receives `record` answers the peer.
  std::optional<Alert> answer_to(const Buffer& record, ErrorCode code, std::string_view why) {
    RecordLayer end = receiver();
    EXPECT_TRUE(fails_with(opened(end, record), code, why));
    EXPECT_TRUE(fails_with(opened(end, record), code, why)) << "as before";
    EXPECT_EQ(opened(end, record).error().where, "secure.record");
    EXPECT_TRUE(fails_with(end.end_of_stream(), code, why));
    EXPECT_TRUE(fails_with(end.seal({}, {}, kNow), code, why));
    auto peer = RecordProtection::make(secret_of(kBack), GetParam()).value();
    Buffer alert = sealed_end(end);
    if (alert.empty()) return std::nullopt;
    const MutableBytes inside(alert.data() + kRecordHeaderBytes, alert.size() - kRecordHeaderBytes);
    const auto opened = peer.open(Bytes(alert).first(kRecordHeaderBytes), inside, {}).value();
    EXPECT_EQ(opened.type, ContentType::alert);
    EXPECT_EQ(opened.content_bytes, 2U);
    EXPECT_EQ(inside[0], std::byte{2});
    return static_cast<Alert>(inside[1]);
  }
};
TENDON_FOR_EACH_SEALER(Records);

Buffer key_update(int requested) {
  return {std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1},
          static_cast<std::byte>(requested)};
}

// --- content

TEST_P(Records, PiecesOfAnySizeArriveAsOneStream) {
  RecordLayer from = sender();
  RecordLayer to = receiver();
  std::mt19937 random(1);
  const Buffer all = random_bytes(200'000, 2);
  for (const std::size_t most : {3, 100, 40'000}) {
    std::vector<Bytes> pieces;
    for (Bytes left = all; !left.empty();) {
      const std::size_t size = std::min<std::size_t>(left.size(), random() % (most + 1));
      pieces.push_back(left.first(size));
      left = left.subspan(size);
    }
    Buffer records;
    Buffer room(50'000);
    std::span<const Bytes> left(pieces);
    Bytes first;
    std::size_t taken_bytes = 0;
    while (taken_bytes < all.size()) {
      // As a caller does: bytes that were not taken are passed again.
      std::vector<Bytes> given(left.begin(), left.end());
      const auto done = from.seal(given, room, kNow).value();
      ASSERT_GT(done.written_bytes, 0U);
      append(records, Bytes(room).first(done.written_bytes));
      taken_bytes += done.taken_bytes;
      pieces = {Bytes(all).subspan(taken_bytes)};
      left = pieces;
    }
    EXPECT_EQ(opened(to, records, random() % 17'000).value(), all);
  }
}

TEST_P(Records, ARecordIsOpenedOnceItIsThereAsAWhole) {
  const Buffer content = random_bytes(1500, 1);
  RecordLayer from = sender();
  Buffer received = sealed(from, content);
  append(received, sealed(from, content));
  RecordLayer to = receiver();
  Buffer destination(2000);
  const Buffer before = received;
  for (std::size_t size = 0; size < content.size() + kRecordOverheadBytes; ++size) {
    const auto part = to.open(MutableBytes(received).first(size), destination, kNow).value();
    ASSERT_EQ(part.state, State::incomplete) << size;
    ASSERT_EQ(part.taken_bytes + part.written_bytes + part.rest.size(), 0U);
  }
  EXPECT_EQ(received, before);
  const auto record = to.open(received, destination, kNow).value();
  EXPECT_EQ(record.state, State::opened);
  EXPECT_EQ(record.taken_bytes, content.size() + kRecordOverheadBytes);
}

TEST_P(Records, ContentGoesStraightToItsPlaceAndTheRestStaysWhereItWas) {
  for (const std::size_t size : {0, 1, 2, 1000, 1023, 1024, 1025, 16'384}) {
    const Buffer content = random_bytes(size, 1);
    for (const std::size_t room : {std::size_t{0}, std::size_t{1}, size / 2, size, size + 1}) {
      SCOPED_TRACE(std::to_string(size) + " bytes into " + std::to_string(room));
      RecordLayer to = receiver();
      Buffer record = record_of(ContentType::application_data, content);
      Buffer destination(room + 1, std::byte{0xEE});
      const auto done = to.open(record, MutableBytes(destination).first(room), kNow).value();
      EXPECT_EQ(done.state, State::opened);
      EXPECT_EQ(done.taken_bytes, record.size());
      EXPECT_EQ(done.written_bytes, std::min(room, size));
      EXPECT_TRUE(std::ranges::equal(Bytes(destination).first(done.written_bytes),
                                     Bytes(content).first(done.written_bytes)));
      EXPECT_TRUE(std::ranges::equal(done.rest, Bytes(content).subspan(done.written_bytes)));
      const Bytes beyond = Bytes(destination).subspan(done.written_bytes);
      EXPECT_EQ(std::ranges::count(beyond, std::byte{0xEE}), std::ssize(beyond));
      EXPECT_EQ(done.rest.data(), record.data() + kRecordHeaderBytes + done.written_bytes);
    }
  }
}

TEST_P(Records, PaddingIsLeftOut) {
  for (const std::size_t size : {0, 1, 700, 1023, 5000}) {
    for (const std::size_t zeros : {1, 2, 300, 9000}) {
      Buffer text = random_bytes(size, 1);
      text.push_back(std::byte{23});
      text.resize(text.size() + zeros - 1);
      const Buffer record = record_of(ContentType::none, text);
      for (const std::size_t room : {std::size_t{0}, size / 2, size, std::size_t{16'000}}) {
        RecordLayer to = receiver();
        EXPECT_EQ(opened(to, record, room).value(), random_bytes(size, 1)) << size << '+' << zeros;
      }
    }
  }
}

TEST_P(Records, RoomIsFilledAndNeverExceeded) {
  RecordLayer from = sender();
  const Buffer content = random_bytes(40'000, 1);
  const Bytes piece(content);
  for (std::size_t room = 0; room < RecordLayer::kLeastRoomBytes; ++room) {
    Buffer records(room);
    const auto done = from.seal(std::span(&piece, 1), records, kNow).value();
    EXPECT_EQ(done.taken_bytes + done.written_bytes, 0U);
  }
  Buffer records(RecordLayer::kLeastRoomBytes);
  EXPECT_EQ(from.seal(std::span(&piece, 1), records, kNow).value().taken_bytes, kKeyUpdateBytes);
  records.resize(40'000);
  const auto done = from.seal(std::span(&piece, 1), records, kNow).value();
  EXPECT_EQ(done.written_bytes, records.size());
  EXPECT_EQ(done.taken_bytes, records.size() - 3 * kRecordOverheadBytes);
  EXPECT_EQ(from.seal({}, records, kNow).value().written_bytes, 0U);
}

// --- an attacker on the path

// Bytes follow the record, so that no flipped length makes it incomplete.
void refuse_each_flip(const Buffer& record, const auto& receiver) {
  Buffer destination(2000);
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    Buffer received = record;
    received[bit / 8] ^= std::byte{1} << (bit % 8);
    received.resize(20'000);
    std::fill(destination.begin(), destination.end(), std::byte{0});
    auto to = receiver();
    ASSERT_TRUE(fails_with(to.open(received, destination, kNow), ErrorCode::protocol_violation))
        << "bit " << bit;
    ASSERT_EQ(std::ranges::count(destination, std::byte{0}), std::ssize(destination)) << bit;
  }
}

TEST_P(Records, EveryFlippedBitIsRefusedAndLeavesNothing) {
  for (const std::size_t size : {0, 50, 1100}) {
    RecordLayer from = sender();
    refuse_each_flip(size == 0 ? sealed_end(from) : sealed(from, random_bytes(size, 1)),
                     [this] { return receiver(); });
  }
}

TEST_P(Records, RecordsThatAreRepeatedLeftOutMovedOrReflectedAreRefused) {
  RecordLayer from = sender();
  const Buffer first = sealed(from, random_bytes(10, 1));
  const Buffer second = sealed(from, random_bytes(20, 2));
  const auto refuses = [&](const std::vector<Buffer>& order) {
    RecordLayer to = receiver();
    Buffer all;
    for (const Buffer& record : order) append(all, record);
    return fails_with(opened(to, all), ErrorCode::protocol_violation, "wrong tag");
  };
  EXPECT_TRUE(refuses({first, first}));
  EXPECT_TRUE(refuses({first, second, first}));
  EXPECT_TRUE(refuses({second}));
  EXPECT_TRUE(refuses({second, first}));
  EXPECT_TRUE(fails_with(opened(from, first), ErrorCode::protocol_violation, "wrong tag"));
  RecordLayer other = end_of(GetParam(), kBack, kBack);
  EXPECT_TRUE(fails_with(opened(other, first), ErrorCode::protocol_violation, "wrong tag"))
      << "of another connection";
}

TEST_P(Records, AStreamThatIsCutAnywhereIsNoOrderlyEnd) {
  RecordLayer from = sender();
  Buffer all = sealed(from, random_bytes(30, 1));
  append(all, sealed(from, random_bytes(40, 2)));
  append(all, sealed_end(from));
  for (std::size_t size = 0; size < all.size(); ++size) {
    RecordLayer to = receiver();
    ASSERT_TRUE(opened(to, Buffer(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size))));
    ASSERT_TRUE(fails_with(to.end_of_stream(), ErrorCode::peer_lost, "close_notify")) << size;
  }
  RecordLayer to = receiver();
  EXPECT_EQ(opened(to, all).value().size(), 70U);
  EXPECT_TRUE(succeeds(to.end_of_stream()));
}

TEST_P(Records, NothingBehindCloseNotifyIsRead) {
  RecordLayer from = sender();
  RecordLayer to = receiver();
  const Buffer end = sealed_end(from);
  ASSERT_TRUE(opened(to, end));
  Buffer more = random_bytes(100, 1);
  const auto done = to.open(more, {}, kNow).value();
  EXPECT_EQ(done.state, State::ended);
  EXPECT_EQ(done.taken_bytes, 0U);
  EXPECT_EQ(more, random_bytes(100, 1));
  // The other direction continues, and ends separately.
  EXPECT_EQ(opened(from, sealed(to, more)).value(), more);
  EXPECT_TRUE(fails_with(from.seal({}, {}, kNow), ErrorCode::pipe_closed));
  EXPECT_EQ(sealed_end(from), Buffer());
}

// --- illegal records of a peer

TEST_P(Records, HeadersAreCheckedBeforeTheirRecordIsThere) {
  constexpr auto kViolation = ErrorCode::protocol_violation;
  EXPECT_EQ(answer_to(from_hex("1503030002"), kViolation, "type 21"), Alert::unexpected_message);
  EXPECT_EQ(answer_to(from_hex("1403030001"), kViolation, "type 20"), Alert::unexpected_message);
  EXPECT_EQ(answer_to(from_hex("0000000000"), kViolation, "type 0"), Alert::unexpected_message);
  EXPECT_EQ(answer_to(from_hex("1703034012"), kViolation, "16402"), Alert::record_overflow);
  EXPECT_EQ(answer_to(from_hex("170303ffff"), kViolation, "65535"), Alert::record_overflow);
  EXPECT_EQ(answer_to(from_hex("1703030010"), kViolation, "no room"), Alert::decode_error);
  EXPECT_EQ(answer_to(from_hex("1703030000"), kViolation, "no room"), Alert::decode_error);
  RecordLayer to = receiver();
  EXPECT_TRUE(opened(to, from_hex("1703034011"))) << "the longest one";
  RecordLayer another = receiver();
  EXPECT_TRUE(opened(another, from_hex("1703030011"))) << "the shortest one";
}

TEST_P(Records, ContentOfOtherTypesIsRefused) {
  constexpr auto kViolation = ErrorCode::protocol_violation;
  const auto answer = [&](int type, const Buffer& content, std::string_view why) {
    return answer_to(record_of(static_cast<ContentType>(type), content), kViolation, why);
  };
  EXPECT_EQ(answer(0, {}, "type 0"), Alert::unexpected_message);
  EXPECT_EQ(answer(0, Buffer(5000), "type 0"), Alert::unexpected_message) << "zeros alone";
  EXPECT_EQ(answer(20, from_hex("01"), "type 20"), Alert::unexpected_message);
  EXPECT_EQ(answer(24, from_hex("01"), "type 24"), Alert::unexpected_message);
  EXPECT_EQ(answer(255, from_hex("01"), "type 255"), Alert::unexpected_message);
  Buffer damaged = record_of(ContentType::application_data, {});
  damaged.back() ^= std::byte{1};
  EXPECT_EQ(answer_to(damaged, kViolation, "wrong tag"), Alert::bad_record_mac);
}

TEST_P(Records, AlertsOfThePeerEndTheLinkWithoutAnAnswer) {
  const auto answer = [&](const Buffer& alert, std::string_view why) {
    return answer_to(record_of(ContentType::alert, alert), ErrorCode::protocol_violation, why);
  };
  EXPECT_EQ(answer(from_hex("0214"), "alert 20"), std::nullopt);
  EXPECT_EQ(answer(from_hex("0150"), "alert 80"), std::nullopt) << "whatever its level";
  EXPECT_EQ(answer(from_hex("01ff"), "alert 255"), std::nullopt);
  EXPECT_EQ(answer(from_hex("01"), "not just one"), Alert::decode_error);
  EXPECT_EQ(answer({}, "not just one"), Alert::decode_error);
  EXPECT_EQ(answer(from_hex("01000100"), "not just one"), Alert::decode_error);
}

TEST_P(Records, HandshakeMessagesOtherThanOneWholeKeyUpdateAreRefused) {
  const auto answer = [&](const Buffer& message, std::string_view why) {
    return answer_to(record_of(ContentType::handshake, message), ErrorCode::protocol_violation,
                     why);
  };
  EXPECT_EQ(answer({}, "no KeyUpdate"), Alert::unexpected_message);
  EXPECT_EQ(answer(from_hex("0400000100"), "no KeyUpdate"), Alert::unexpected_message);
  EXPECT_EQ(answer(Buffer(16'384, std::byte{1}), "no KeyUpdate"), Alert::unexpected_message);
  EXPECT_EQ(answer(from_hex("18"), "not alone"), Alert::decode_error);
  EXPECT_EQ(answer(from_hex("18000001"), "not alone"), Alert::decode_error);
  EXPECT_EQ(answer(from_hex("1800000000"), "not alone"), Alert::decode_error);
  EXPECT_EQ(answer(from_hex("1801000100"), "not alone"), Alert::decode_error);
  EXPECT_EQ(answer(from_hex("180000010018"), "not alone"), Alert::decode_error);
  EXPECT_EQ(answer(from_hex("1800000102"), "asks for"), Alert::illegal_parameter);
  EXPECT_EQ(answer(from_hex("18000001ff"), "asks for"), Alert::illegal_parameter);
}

TEST_P(Records, WordsInsideTheDestinationAreNoContent) {
  const Buffer record = record_of(ContentType::handshake, key_update(1));
  for (std::size_t room = 0; room < 9; ++room) {
    RecordLayer to = receiver();
    Buffer received = record;
    Buffer destination(room);
    const auto done = to.open(received, destination, kNow).value();
    EXPECT_EQ(done.state, State::opened);
    EXPECT_EQ(done.written_bytes + done.rest.size(), 0U);
    EXPECT_EQ(sealed(to, {}).size(), record.size()) << "its answer";
  }
}

// --- keys

TEST_P(Records, KeysChangeByRecordsBytesAndAge) {
  constexpr std::size_t kRecord = 10 + kRecordOverheadBytes;
  constexpr std::size_t kUpdate = kKeyUpdateBytes + kRecordOverheadBytes;
  const Buffer content = random_bytes(10, 1);
  const auto sizes = [&](const RecordLimits& limits, std::chrono::seconds each) {
    RecordLayer from = sender(limits);
    RecordLayer to = receiver();
    std::vector<std::size_t> found;
    for (int turn = 0; turn < 7; ++turn) {
      const Buffer records = sealed(from, content, kNow + turn * each);
      EXPECT_EQ(opened(to, records).value(), content);
      found.push_back(records.size());
    }
    return found;
  };
  using Sizes = std::vector<std::size_t>;
  constexpr std::size_t kBoth = kRecord + kUpdate;
  constexpr std::chrono::seconds kNever{0};
  EXPECT_EQ(sizes({}, kNever), Sizes(7, kRecord));
  EXPECT_EQ(sizes({.records = 4}, kNever),
            (Sizes{kRecord, kRecord, kBoth, kRecord, kRecord, kBoth, kRecord}));
  EXPECT_EQ(sizes({.records = 1}, kNever), Sizes(7, kBoth));
  EXPECT_EQ(sizes({.bytes = kRecord + 1}, kNever),
            (Sizes{kRecord, kBoth, kRecord, kBoth, kRecord, kBoth, kRecord}));
  EXPECT_EQ(sizes({.age = std::chrono::seconds(3)}, std::chrono::seconds(1)),
            (Sizes{kRecord, kRecord, kRecord, kBoth, kRecord, kRecord, kBoth}));
  EXPECT_EQ(RecordLimits{}.records, 16'777'216U);
  EXPECT_EQ(RecordLimits{}.bytes, 68'719'476'736U);
  EXPECT_EQ(RecordLimits{}.age, std::chrono::minutes(10));
}

TEST_P(Records, AKeyThatSealedNothingIsNeverTooOld) {
  RecordLayer from = sender({.age = std::chrono::seconds(3)});
  RecordLayer to = receiver();
  EXPECT_EQ(sealed(from, {}, kNow), Buffer());
  EXPECT_EQ(sealed(from, {}, kNow + std::chrono::hours(1)), Buffer());
  const Buffer content(1);
  EXPECT_EQ(sealed(from, content, kNow + std::chrono::hours(1)).size(), 1 + kRecordOverheadBytes);
}

TEST_P(Records, RequestsOfThePeerGetOneAnswer) {
  RecordLayer to = receiver();
  auto peer = RecordProtection::make(secret_of(kThere), GetParam()).value();
  const Buffer request = key_update(1);
  const Bytes message(request);
  for (int turn = 0; turn < 3; ++turn) {
    Buffer record(100);
    record.resize(peer.seal(ContentType::handshake, std::span(&message, 1), record).value());
    ASSERT_TRUE(peer.advance());
    ASSERT_TRUE(succeeds(opened(to, record)));
  }
  EXPECT_EQ(sealed(to, {}).size(), kKeyUpdateBytes + kRecordOverheadBytes);
  EXPECT_EQ(sealed(to, {}), Buffer());
}

TEST_P(Records, AFloodOfKeyUpdatesIsRefused) {
  const RecordLimits limits{.updates = 3, .updates_within = std::chrono::seconds(10)};
  auto peer = RecordProtection::make(secret_of(kThere), GetParam()).value();
  RecordLayer to = receiver(limits);
  const auto update_at = [&](std::chrono::seconds time) {
    const Buffer update = key_update(0);
    const Bytes message(update);
    Buffer record(100);
    record.resize(peer.seal(ContentType::handshake, std::span(&message, 1), record).value());
    EXPECT_TRUE(peer.advance());
    return opened(to, record, 100, kNow + time);
  };
  using std::chrono::seconds;
  for (const seconds time :
       {seconds(0), seconds(1), seconds(9), seconds(10), seconds(11), seconds(19)})
    ASSERT_TRUE(succeeds(update_at(time)));
  EXPECT_TRUE(fails_with(update_at(seconds(19)), ErrorCode::protocol_violation, "more than 3"));
}

TEST_P(Records, OldKeysOpenNothing) {
  RecordLayer from = sender({.records = 2});
  RecordLayer old = sender();
  RecordLayer to = receiver();
  const Buffer content = random_bytes(10, 1);
  EXPECT_EQ(opened(to, sealed(from, content)).value(), content);
  EXPECT_EQ(opened(to, sealed(from, content)).value(), content);
  EXPECT_TRUE(fails_with(opened(to, sealed(old, content)), ErrorCode::protocol_violation));
}

TEST_P(Records, SequenceNumbersEndBeforeTheyRepeat) {
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
  auto from = RecordProtection::make(secret_of(kThere), GetParam(), kLast - 1).value();
  auto to = RecordProtection::make(secret_of(kThere), GetParam(), kLast - 1).value();
  Buffer record(100);
  const std::size_t size = from.seal(ContentType::alert, {}, record).value();
  const MutableBytes inside = MutableBytes(record).first(size).subspan(kRecordHeaderBytes);
  EXPECT_TRUE(succeeds(to.open(Bytes(record).first(kRecordHeaderBytes), inside, {})));
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(fails_with(from.seal(ContentType::alert, {}, record), ErrorCode::limit_exceeded));
    EXPECT_TRUE(fails_with(to.open(Bytes(record).first(kRecordHeaderBytes), inside, {}),
                           ErrorCode::limit_exceeded));
  }
  ASSERT_TRUE(from.advance());
  EXPECT_EQ(from.sequence(), 0U);
}

// --- the switch to another session

constexpr int kRenewed = 3;

TEST_P(Records, CloseNotifyIsTheSwitchThatIsExpected) {
  RecordLayer from = sender();
  RecordLayer to = receiver();
  const Buffer content = random_bytes(3000, 1);
  Buffer all = sealed(from, content);
  append(all, sealed_switch(from, kRenewed));
  append(all, sealed(from, content));
  append(all, sealed_end(from));

  RecordLayer unaware = receiver();
  EXPECT_EQ(opened(unaware, all).value(), content) << "an end";
  EXPECT_TRUE(succeeds(unaware.end_of_stream()));

  to.expect_switch(secret_of(kRenewed));
  EXPECT_TRUE(to.expects_switch());
  Buffer twice = content;
  append(twice, content);
  EXPECT_EQ(opened(to, all).value(), twice);
  EXPECT_FALSE(to.expects_switch());
  EXPECT_TRUE(succeeds(to.end_of_stream()));

  // Cut at any point, the stream has no orderly end.
  for (std::size_t size = 0; size < all.size(); size += size < 6000 ? 97 : 1) {
    RecordLayer cut = receiver();
    cut.expect_switch(secret_of(kRenewed));
    ASSERT_TRUE(opened(cut, Buffer(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size))));
    ASSERT_TRUE(fails_with(cut.end_of_stream(), ErrorCode::peer_lost, "close_notify")) << size;
  }
}

TEST_P(Records, BehindASwitchTheFormerKeysAreNone) {
  RecordLayer from = sender();
  RecordLayer old = sender();
  RecordLayer to = receiver();
  to.expect_switch(secret_of(kRenewed));
  (void)sealed_switch(old, kThere);  // as `from` does
  ASSERT_TRUE(opened(to, sealed_switch(from, kRenewed)));
  EXPECT_TRUE(
      fails_with(opened(to, sealed(old, random_bytes(10, 1))), ErrorCode::protocol_violation));
}

// The new key has sealed nothing yet, so no KeyUpdate is due.
TEST_P(Records, ASwitchIsAFreshKey) {
  RecordLayer from = sender({.records = 4});
  RecordLayer to = receiver();
  to.expect_switch(secret_of(kRenewed));
  const Buffer content = random_bytes(10, 1);
  ASSERT_TRUE(opened(to, sealed(from, content)));
  ASSERT_TRUE(opened(to, sealed(from, content)));
  ASSERT_TRUE(opened(to, sealed_switch(from, kRenewed)));
  // Each is one record: no KeyUpdate precedes the second one.
  for (int n = 0; n < 2; ++n) {
    const Buffer record = sealed(from, content);
    EXPECT_EQ(record.size(), content.size() + kRecordOverheadBytes);
    EXPECT_EQ(opened(to, record).value(), content);
  }
}

TEST_P(Records, ASwitchNeedsRoomAndADirectionThatLives) {
  RecordLayer from = sender();
  Buffer small(RecordLayer::kLeastRoomBytes - 1);
  EXPECT_EQ(from.seal_switch(small, secret_of(kRenewed)).value(), 0U);
  RecordLayer to = receiver();
  EXPECT_EQ(opened(to, sealed(from, random_bytes(10, 1))).value(), random_bytes(10, 1));
  (void)sealed_end(from);
  EXPECT_EQ(sealed_switch(from, kRenewed), Buffer());
}

}  // namespace
