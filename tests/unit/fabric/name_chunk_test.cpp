// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/name_chunk.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tendon/fabric/key_expression.hpp>

#include "support/expect.hpp"

namespace {

using tendon::ErrorCode;
using tendon::KeyExpression;
using tendon::kMaxNameChunkBytes;
using tendon::detail::name_from_chunk;
using tendon::detail::name_to_chunk;
using tendon::test::fails_with;

TEST(NameChunk, IsOneChunkThatWildcardsMatch) {
  struct Case {
    const char* name;
    const char* chunk;
  };
  for (const Case& one :
       {Case{"vision", "vision"}, Case{"left arm", "left arm"}, Case{"größe", "größe"},
        Case{"a/b", "a%2Fb"}, Case{"100%", "100%25"}, Case{"*", "%2A"}, Case{"**", "%2A%2A"},
        Case{"$*", "%24%2A"}, Case{"#1?", "%231%3F"}, Case{"@robot", "%40robot"},
        Case{"a@b", "a@b"}, Case{"@@", "%40@"}, Case{"%2F", "%252F"}}) {
    SCOPED_TRACE(one.name);
    const std::string chunk = name_to_chunk(one.name).value();
    EXPECT_EQ(chunk, one.chunk);
    EXPECT_EQ(name_from_chunk(chunk).value(), one.name);
    const KeyExpression key = KeyExpression::parse(chunk).value();
    EXPECT_TRUE(key.is_key());
    EXPECT_TRUE(KeyExpression::parse("*").value().includes(key));
  }
}

TEST(NameChunk, IsRefusedAsANameThatCannotBeSeen) {
  EXPECT_TRUE(fails_with(name_to_chunk(""), ErrorCode::invalid_argument, "is empty"));
  for (const char* name : {"a\xff", "a\nb", "a\x1b[2J", "vi\xc2\xadsion", "\xe2\x80\xaex"}) {
    EXPECT_TRUE(fails_with(name_to_chunk(name), ErrorCode::invalid_argument, "hidden characters"));
    EXPECT_TRUE(fails_with(name_from_chunk(name), ErrorCode::invalid_argument, "hidden"));
  }
}

TEST(NameChunk, HasOneSpelling) {
  struct Case {
    const char* chunk;
    const char* why;
  };
  for (const Case& one :
       {Case{"", "is empty"}, Case{"%", "'%' without two digits"},
        Case{"%2", "'%' without two digits"}, Case{"a%2G", "'%' without two digits"},
        Case{"%2f", "'%' without two digits"}, Case{"%76ision", "is spelt 'vision'"},
        Case{"@a", "is spelt '%40a'"}, Case{"a%40", "is spelt 'a@'"}, Case{"a*", "is spelt 'a%2A'"},
        Case{"%00", "hidden characters"}, Case{"%FF", "hidden characters"}}) {
    SCOPED_TRACE(one.chunk);
    EXPECT_TRUE(fails_with(name_from_chunk(one.chunk), ErrorCode::invalid_argument, one.why));
  }
}

TEST(NameChunk, IsNoLongerThanItsLimit) {
  const std::string longest(kMaxNameChunkBytes, 'a');
  EXPECT_EQ(name_to_chunk(longest).value(), longest);
  EXPECT_EQ(name_from_chunk(longest).value(), longest);
  EXPECT_TRUE(fails_with(name_to_chunk(longest + 'a'), ErrorCode::limit_exceeded,
                         "256 bytes, each of %/*$#? counted as 3; legal: 1-255"));
  EXPECT_TRUE(fails_with(name_from_chunk(longest + 'a'), ErrorCode::limit_exceeded, "256 bytes"));
  const std::string escapes(kMaxNameChunkBytes / 3, '*');
  EXPECT_EQ(name_to_chunk(escapes).value().size(), kMaxNameChunkBytes);
  EXPECT_TRUE(fails_with(name_to_chunk(escapes + 'a'), ErrorCode::limit_exceeded, "256 bytes"));
}

}  // namespace
