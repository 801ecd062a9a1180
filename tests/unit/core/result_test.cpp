// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) {
    return Error{ErrorCode::invalid_argument, "test.half", std::to_string(number) + " is odd"};
  }
  return number / 2;
}

Result<int> quarter(int number) {
  TENDON_TRY(once, half(number));
  TENDON_TRY(twice, half(once));
  return twice;
}

Result<void> check_even(int number) {
  TENDON_CHECK(half(number));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = half(4);
  ASSERT_TRUE(good.has_value());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 2);
  EXPECT_EQ(good.value(), 2);

  const Result<int> bad = half(3);
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(bad.error().detail, "3 is odd");
}

TEST(Result, ValueThrowsTheError) {
  try {
    static_cast<void>(half(3).value());
    FAIL() << "value() of an error returned";
  } catch (const Exception& thrown) {
    EXPECT_EQ(thrown.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(thrown.error().detail, "3 is odd");
    EXPECT_NE(std::string(thrown.what()).find("TD-E0001"), std::string::npos);
  }
  EXPECT_THROW(check_even(3).value(), Exception);
  EXPECT_NO_THROW(check_even(4).value());
}

TEST(Result, MacrosPassTheErrorOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().detail, "3 is odd");
  EXPECT_TRUE(check_even(2));
  EXPECT_EQ(check_even(1).error().detail, "1 is odd");
}

TEST(Result, ValueOfATemporaryOutlivesIt) {
  const auto make = [] { return Result<std::vector<std::string>>({"a long enough text", "b"}); };
  std::string seen;
  for (const std::string& text : make().value()) seen += text;
  EXPECT_EQ(seen, "a long enough textb");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> held(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = *std::move(held);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, AndThenChainsAndStopsAtTheFirstError) {
  int calls = 0;
  const auto count = [&](int number) {
    ++calls;
    return half(number);
  };
  EXPECT_EQ(*half(8).and_then(count).and_then(count), 1);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(half(3).and_then(count).error().detail, "3 is odd");
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(check_even(2).and_then([] { return check_even(4); }));
  EXPECT_FALSE(check_even(2).and_then([] { return check_even(5); }));
}

TEST(Result, TransformMapsTheValueOnly) {
  const Result<std::string> text = half(8).transform([](int n) { return std::to_string(n); });
  EXPECT_EQ(*text, "4");
  EXPECT_FALSE(half(3).transform([](int n) { return n + 1; }));
  int seen = 0;
  const Result<void> nothing = half(8).transform([&](int n) { seen = n; });
  EXPECT_TRUE(nothing);
  EXPECT_EQ(seen, 4);
}

TEST(Result, OrElseMapsTheErrorOnly) {
  EXPECT_EQ(*half(3).or_else([](const Error&) { return Result<int>(9); }), 9);
  EXPECT_EQ(*half(4).or_else([](const Error&) { return Result<int>(9); }), 2);
}

TEST(Result, ValueOrGivesTheFallback) {
  EXPECT_EQ(half(3).value_or(5), 5);
  EXPECT_EQ(half(4).value_or(5), 2);
}

// Checks that the types forbid calls that a compiler would otherwise accept silently.
template <class R>
concept HasArrowOnRvalue = requires(R&& result) { std::forward<R>(result).operator->(); };
static_assert(HasArrowOnRvalue<Result<std::string>&>);
static_assert(!HasArrowOnRvalue<Result<std::string>&&>);
static_assert(std::is_same_v<decltype(std::declval<Result<std::string>>().value()), std::string>);

TEST(ResultDeathTest, UsingTheValueBehindAnErrorSaysWhichAndAborts) {
  Result<std::string> failed = Error{ErrorCode::peer_lost, "pipe.recv", "peer trainer is gone"};
  const Result<std::string>& constant = failed;
  EXPECT_DEATH((void)*failed, "peer trainer is gone.*pipe.recv");
  EXPECT_DEATH((void)*constant, "peer trainer is gone");
  EXPECT_DEATH((void)failed->size(), "peer trainer is gone");
  EXPECT_DEATH((void)constant->size(), "peer trainer is gone");
  EXPECT_DEATH((void)*std::move(failed), "peer trainer is gone");
}

}  // namespace
}  // namespace tendon
