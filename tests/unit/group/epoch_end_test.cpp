// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/epoch_end.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

Error why(std::string_view text) { return {ErrorCode::timeout, "test", std::string(text)}; }

TEST(EpochEnd, NothingIsDoneBeforeItBeginsAndEverythingWhileItRuns) {
  EpochEnd end;
  EXPECT_FALSE(end.runs());
  EXPECT_TRUE(end.ends_before(1));
  end.begin();
  EXPECT_TRUE(end.runs());
  EXPECT_FALSE(end.ends_before(~std::uint32_t{0}));
  EXPECT_FALSE(end.must_tell());
}

TEST(EpochEnd, AnEarlierEndReplacesALaterOneAndNoOther) {
  EpochEnd end;
  end.begin();
  EXPECT_TRUE(end.end(7, why("seven"), AbortWord{{.from = GroupPlace{3}}, "word of seven"}));
  EXPECT_FALSE(end.end(7, why("again")));
  EXPECT_FALSE(end.end(9, why("later")));
  EXPECT_EQ(end.why()->detail, "seven");
  EXPECT_EQ(end.word_of({1}, 5).text, "word of seven");
  EXPECT_EQ(end.word_of({1}, 5).envelope.sequence, 7u);
  EXPECT_TRUE(end.end(4, why("four")));
  EXPECT_EQ(end.why()->detail, "four");
  const AbortWord own = end.word_of({1}, 5);
  EXPECT_EQ(own.text, "four") << "the word was of another end";
  EXPECT_EQ(own.envelope.from.in_group(), GroupPlace{1});
  EXPECT_EQ(own.envelope.epoch, 5u);
  EXPECT_EQ(own.envelope.sequence, 4u);
  EXPECT_FALSE(end.take_word());
}

TEST(EpochEnd, OperationsAreComparedByTheLowerHalfOfTheirNumbers) {
  EpochEnd end;
  end.begin();
  EXPECT_TRUE(end.end((std::uint64_t{1} << 32) + 2, why("")));
  EXPECT_FALSE(end.ends_before(1));
  EXPECT_FALSE(end.ends_before(~std::uint32_t{0}));
  EXPECT_TRUE(end.ends_before(2));
  EXPECT_TRUE(end.ends_before(100));
}

TEST(EpochEnd, WhoEndedItEarlierThanTheOthersKnowTellsThem) {
  EpochEnd end;
  end.begin();
  EXPECT_FALSE(end.any_told());
  EXPECT_TRUE(end.end(3, why("three")));
  EXPECT_TRUE(end.must_tell());
  end.note_told(8);
  EXPECT_TRUE(end.must_tell());
  end.note_told(3);
  EXPECT_FALSE(end.must_tell());
  EXPECT_TRUE(end.any_told());
  end.begin();
  EXPECT_FALSE(end.any_told());
  EXPECT_FALSE(end.why());
}

TEST(EpochEnd, AReasonThatIsKnownStays) {
  EpochEnd end;
  end.begin();
  EXPECT_TRUE(end.end(3, why("three"), AbortWord{{}, "word"}));
  end.end_unless_known(EpochEnd::kAll, why("left"));
  EXPECT_EQ(end.first(), EpochEnd::kAll);
  EXPECT_EQ(end.why()->detail, "three");
  EXPECT_EQ(end.word_of({1}, 1).text, "word");
  EpochEnd other;
  other.end_unless_known(EpochEnd::kAll, why("left"));
  EXPECT_EQ(other.why()->detail, "left");
}

}  // namespace
}  // namespace tendon::detail
