// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/path.hpp>
#include <vector>

#include "support/expect.hpp"

namespace tendon {
namespace {

using test::fails_with;
using Names = std::vector<std::string>;

TEST(Path, SplitsAtSlashes) {
  EXPECT_EQ(parse_path("a").value(), Names({"a"}));
  EXPECT_EQ(parse_path("a/b c/d.e").value(), Names({"a", "b c", "d.e"}));
  EXPECT_EQ(parse_path("a%2Fb/50%25").value(), Names({"a/b", "50%"}));
  EXPECT_EQ(parse_path("a%2fb").value(), Names({"a/b"})) << "small letters are read too";
  EXPECT_EQ(parse_path("%").value(), Names({""})) << "the name without characters";
}

TEST(Path, EveryNameComesBack) {
  for (const Names& names :
       {Names{"a"}, Names{"a/b", "c%d", "%2F", "%", ""}, Names{"ü", "日本", "\x01"}}) {
    const std::string path = format_path(names).value();
    EXPECT_EQ(parse_path(path).value(), names) << path;
  }
  EXPECT_EQ(format_path(Names{"a/b", "50%", ""}).value(), "a%2Fb/50%25/%");
}

TEST(Path, RefusesWhatIsNone) {
  for (const char* path : {"", "/", "a/", "/a", "a//b", "%zz", "%2", "a%", "%2G"})
    EXPECT_TRUE(fails_with(parse_path(path), ErrorCode::invalid_argument)) << path;
  EXPECT_TRUE(fails_with(parse_path("__metadata__"), ErrorCode::invalid_argument, "__metadata__"));
  EXPECT_TRUE(fails_with(parse_path("a/__metadata__"), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(format_path(Names{}), ErrorCode::invalid_argument));
}

TEST(Path, NamesAreUtf8) {
  for (const char* name : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80",
                           "\xe2\x82", "\xf8\x88\x80\x80\x80"})
    EXPECT_TRUE(fails_with(check_name(name), ErrorCode::invalid_argument, "UTF-8"));
  for (const char* name : {"ä", "€", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xee\x80\x80"})
    EXPECT_TRUE(test::succeeds(check_name(name)));
}

TEST(Path, LimitsHoldAndNothingBelowThem) {
  EXPECT_TRUE(test::succeeds(check_name(std::string(kMaxNameBytes, 'n'))));
  EXPECT_TRUE(fails_with(check_name(std::string(kMaxNameBytes + 1, 'n')), ErrorCode::limit_exceeded,
                         "255"));

  const Names deep(kMaxDepth, "d");
  EXPECT_EQ(parse_path(format_path(deep).value()).value(), deep);
  const Names deeper(kMaxDepth + 1, "d");
  EXPECT_TRUE(fails_with(format_path(deeper), ErrorCode::limit_exceeded, "32"));
  std::string text = "d";
  for (std::size_t i = 0; i < kMaxDepth; ++i) text += "/d";
  EXPECT_TRUE(fails_with(parse_path(text), ErrorCode::limit_exceeded, "32"));

  // 16 names of 255 bytes and their separators are 4095 bytes.
  Names longest(16, std::string(kMaxNameBytes, 'n'));
  EXPECT_EQ(format_path(longest).value().size(), kMaxPathBytes - 1);
  longest.back().pop_back();
  longest.back().pop_back();
  longest.emplace_back("xx");
  const std::string path = format_path(longest).value();
  EXPECT_EQ(path.size(), kMaxPathBytes);
  EXPECT_TRUE(test::succeeds(parse_path(path)));
  EXPECT_TRUE(fails_with(parse_path(path + "x"), ErrorCode::limit_exceeded, "4096"));
  longest.back() = "xxx";
  EXPECT_TRUE(fails_with(format_path(longest), ErrorCode::limit_exceeded, "4096"));
}

TEST(Path, ErrorsShowNoControlCharacters) {
  const auto failed = parse_path("a//\x1b[2J\n");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().detail.find('\x1b'), std::string::npos);
  EXPECT_NE(failed.error().detail.find("\\x1b"), std::string::npos) << failed.error().detail;
}

}  // namespace
}  // namespace tendon
