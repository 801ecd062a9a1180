// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/value.hpp>

#include "support/expect.hpp"
#include "support/program_float_mode.hpp"

namespace tendon {
namespace {

using test::fails_with;

Result<Value> parse(std::string_view json) { return parse_json(as_bytes(json)); }

// The entry "x" of a JSON object.
Value parse_x(std::string_view json) {
  const Value object = parse(json).value();
  return *object.find("x");
}

Value nested(std::size_t depth) {
  Value value = Value::List{};
  for (std::size_t i = 1; i < depth; ++i) value = Value::List{value};
  return value;
}

TEST(Value, KindsOfLiterals) {
  EXPECT_EQ(Value().kind(), Value::Kind::null);
  EXPECT_EQ(Value(true).kind(), Value::Kind::boolean);
  EXPECT_EQ(Value(7).kind(), Value::Kind::i64);
  EXPECT_EQ(Value(7u).kind(), Value::Kind::i64) << "equal numbers are equal values";
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).kind(), Value::Kind::u64);
  EXPECT_EQ(Value(0.5f).kind(), Value::Kind::f64);
  EXPECT_EQ(Value("text").kind(), Value::Kind::string);
  EXPECT_EQ(Value(Value::List{1, "a", nullptr}).kind(), Value::Kind::list);
  EXPECT_EQ(Value(Value::Map{{"a", 1}}).kind(), Value::Kind::map);
}

TEST(Value, AccessorsRefuseOtherKinds) {
  EXPECT_EQ(Value(7).as_i64(), 7);
  EXPECT_EQ(Value(7).as_u64(), 7u);
  EXPECT_EQ(Value(7).as_f64(), 7.0);
  EXPECT_EQ(Value("x").as_string(), "x");
  EXPECT_THROW(static_cast<void>(Value(7).as_bool()), Exception);
  EXPECT_THROW(static_cast<void>(Value(-7).as_u64()), Exception);
  EXPECT_THROW(static_cast<void>(Value(~0ull).as_i64()), Exception);
  EXPECT_THROW(static_cast<void>(Value(0.5).as_i64()), Exception);
  EXPECT_THROW(static_cast<void>(Value().as_string()), Exception);
}

TEST(Value, EqualityIsOfBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Value(nan), Value(nan));
  EXPECT_NE(Value(0.0), Value(-0.0));
  EXPECT_NE(Value(1), Value(1.0));
  EXPECT_NE(Value(Value::Map{{"a", 1}, {"b", 2}}), Value(Value::Map{{"b", 2}, {"a", 1}}));
}

TEST(Json, WritesOneLineInOrder) {
  const Value value = Value::Map{{"z", 1},
                                 {"a", Value::List{true, nullptr, -5, 0.5}},
                                 {"text", "q\"\n\\ü"},
                                 {"big", std::numeric_limits<std::uint64_t>::max()}};
  EXPECT_EQ(to_json(value).value(),
            "{\"z\":1,\"a\":[true,null,-5,0.5],\"text\":\"q\\\"\\n\\\\ü\","
            "\"big\":18446744073709551615}");
}

TEST(Json, FloatsStayFloats) {
  const double kNumbers[] = {0.0,
                             -0.0,
                             7.0,
                             0.1,
                             1e300,
                             -1e-300,
                             5e-324,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
  for (const double number : kNumbers) {
    const Value value = Value::Map{{"x", number}};
    const std::string json = to_json(value).value();
    EXPECT_EQ(parse(json).value(), value) << json;
  }
  EXPECT_EQ(to_json(Value::Map{{"x", 7.0}}).value(), "{\"x\":7.0}");
  EXPECT_EQ(to_json(Value::Map{{"x", std::nan("")}}).value(), "{\"x\":{\"$float\":\"nan\"}}");
}

TEST(Json, FloatsAreReadAndWrittenAsEverywhereInEachModeOfArithmetic) {
  using test::ProgramFloatMode;
  using Kind = ProgramFloatMode::Kind;
  const Value value = Value::Map{{"smallest", 5e-324},
                                 {"tenth", 0.1},
                                 {"third", 1.0 / 3.0},
                                 {"large", 1.7976931348623157e308}};
  const std::string expected = to_json(value).value();
  for (const Kind kind : {Kind::flush_to_zero, Kind::upward, Kind::downward, Kind::raising}) {
    const ProgramFloatMode mode(kind);
    EXPECT_EQ(to_json(value).value(), expected) << static_cast<int>(kind);
    EXPECT_EQ(parse(expected).value(), value) << static_cast<int>(kind);
  }
}

TEST(Json, IntegersAreWhole) {
  EXPECT_EQ(parse_x("{\"x\":-9223372036854775808}").as_i64(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse_x("{\"x\":18446744073709551615}").as_u64(), ~0ull);
  EXPECT_TRUE(
      fails_with(parse("{\"x\":18446744073709551616}"), ErrorCode::corrupt_data, "64 bits"));
  EXPECT_TRUE(
      fails_with(parse("{\"x\":-9223372036854775809}"), ErrorCode::corrupt_data, "64 bits"));
  EXPECT_TRUE(fails_with(parse("{\"x\":1e999}"), ErrorCode::corrupt_data, "range"));
}

TEST(Json, RefusesWhatIsNoObject) {
  for (const char* json :
       {"", "[]", "1", "null", "{", "{}{}", "{} x", "{\"a\":}", "{a:1}", "{\"a\":1,}",
        "{\"a\":NaN}", "{\"a\":'b'}", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}", "{/**/}"})
    EXPECT_TRUE(fails_with(parse(json), ErrorCode::corrupt_data)) << json;
  EXPECT_TRUE(fails_with(to_json(Value(7)), ErrorCode::invalid_argument));
}

TEST(Json, RefusesAKeyTwice) {
  EXPECT_TRUE(fails_with(parse("{\"a\":1,\"a\":2}"), ErrorCode::corrupt_data, "'a'"));
  EXPECT_TRUE(test::succeeds(parse("{\"a\":{\"a\":1},\"b\":{\"a\":1}}")));
  EXPECT_TRUE(fails_with(to_json(Value::Map{{"a", 1}, {"a", 2}}), ErrorCode::invalid_argument));
}

TEST(Json, TheNameOfNonFiniteFloatsIsReserved) {
  EXPECT_TRUE(fails_with(to_json(Value::Map{{"x", Value::Map{{"$float", "nan"}}}}),
                         ErrorCode::invalid_argument, "$float"));
  EXPECT_TRUE(fails_with(parse("{\"x\":{\"$float\":\"two\"}}"), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(parse("{\"x\":{\"$float\":1}}"), ErrorCode::corrupt_data));
  EXPECT_EQ(parse_x("{\"x\":{\"$float\":\"nan\",\"b\":1}}").kind(), Value::Kind::map);
  EXPECT_TRUE(fails_with(parse("{\"$float\":\"nan\"}"), ErrorCode::corrupt_data, "object"));
}

TEST(Json, DepthAtTheLimitAndBeyond) {
  const Value most = Value::Map{{"x", nested(kMaxDepth - 1)}};
  EXPECT_EQ(parse(to_json(most).value()).value(), most);
  EXPECT_TRUE(
      fails_with(to_json(Value::Map{{"x", nested(kMaxDepth)}}), ErrorCode::limit_exceeded, "32"));
  const std::string text =
      "{\"x\":" + std::string(kMaxDepth, '[') + std::string(kMaxDepth, ']') + "}";
  EXPECT_TRUE(fails_with(parse(text), ErrorCode::limit_exceeded, "32"));
  // Counted while parsing: a million brackets cost neither stack nor memory.
  EXPECT_TRUE(fails_with(parse("{\"x\":" + std::string(kMaxValuesBytes - 10, '[')),
                         ErrorCode::limit_exceeded));
}

TEST(Json, SizeAtTheLimitAndBeyond) {
  const std::string frame = "{\"x\":\"\"}";
  const Value most = Value::Map{{"x", std::string(kMaxValuesBytes - frame.size(), 'a')}};
  const std::string json = to_json(most).value();
  EXPECT_EQ(json.size(), kMaxValuesBytes);
  EXPECT_EQ(parse(json).value(), most);
  EXPECT_TRUE(fails_with(parse(json + " "), ErrorCode::limit_exceeded, "1048576"));
  const Value more = Value::Map{{"x", std::string(kMaxValuesBytes - frame.size() + 1, 'a')}};
  EXPECT_TRUE(fails_with(to_json(more), ErrorCode::limit_exceeded, "1048577"));
}

TEST(Json, TextMustBeUtf8) {
  EXPECT_TRUE(fails_with(to_json(Value::Map{{"x", "\xff"}}), ErrorCode::invalid_argument, "UTF-8"));
  EXPECT_TRUE(fails_with(to_json(Value::Map{{"\xff", 1}}), ErrorCode::invalid_argument, "UTF-8"));
}

TEST(Value, PrintsForPeople) {
  std::ostringstream out;
  out << Value(Value::Map{{"a", Value::List{1, 2.0, "x\x1b"}}, {"b", std::nan("")}});
  EXPECT_EQ(out.str(), "{'a': [1, 2.0, 'x\\x1b'], 'b': nan}");
}

}  // namespace
}  // namespace tendon
