// SPDX-License-Identifier: Apache-2.0
// How the non-tensor values of a message change the TensorDict that receives it.
#include <gtest/gtest.h>

#include <string>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "support/batches.hpp"
#include "support/expect.hpp"
#include "tensor/tree.hpp"

namespace tendon::test {
namespace {

using detail::Tree;

TensorDict with(TensorDict dict, const Value::Map& values) {
  for (const auto& [path, value] : values) dict.set(path, value);
  return dict;
}

TEST(MergeValues, TakesWhatCameAndKeepsTheRest) {
  for (TensorDict dict : {numbered(1), packed_copy(numbered(1)),
                          with(numbered(1), {{"step", 1}, {"mine", 2}, {"info/mine", 3}}),
                          packed_copy(with(numbered(1), {{"step", 1}}))}) {
    const bool has_others = dict.contains("mine");
    const std::byte* const memory = dict["n"].data();
    ASSERT_TRUE(succeeds(Tree::merge_values(dict, Value::Map{{"step", 7}, {"info/deep/x", 8}})));
    EXPECT_EQ(dict.value("step").as_i64(), 7);
    EXPECT_EQ(dict.value("info/deep/x").as_i64(), 8);
    EXPECT_EQ(dict.values()->as_map().size(), has_others ? 4u : 2u);
    EXPECT_EQ(dict["n"].data(), memory);
    ASSERT_TRUE(succeeds(Tree::merge_values(dict, Value::Map{{"info/deep/x", 9}})));
    EXPECT_EQ(dict.value("step").as_i64(), 7);
    EXPECT_EQ(dict.value("info/deep/x").as_i64(), 9);
  }
}

TEST(MergeValues, WhatStandsInTheWayMakesRoom) {
  TensorDict dict = with(numbered(1), {{"a", 1}, {"b/c/d", 2}, {"b/e", 3}});
  const std::byte* const memory = dict["n"].data();
  ASSERT_TRUE(succeeds(Tree::merge_values(dict, Value::Map{{"a/x/y", 4}, {"a/x/z", 5}, {"b", 6}})));
  EXPECT_EQ(*dict.values(), Value(Value::Map{{"a/x/y", 4}, {"a/x/z", 5}, {"b", 6}}));
  EXPECT_EQ(dict["n"].data(), memory);
  EXPECT_EQ(dict.schema()->nodes().size(), 3u) << "the root, a and a/x";
}

// The first of two values fits, the second does not.
TEST(MergeValues, ARefusalChangesNothing) {
  const std::string long_text(kMaxValuesBytes * 2 / 3, 'v');
  const TensorDict before = with(numbered(1), {{"mine", long_text}});
  for (TensorDict dict : {before, packed_copy(before)}) {
    const Value values = Value::Map{{"step", 7}, {"text", long_text}};
    EXPECT_TRUE(fails_with(Tree::merge_values(dict, values), ErrorCode::limit_exceeded));
    EXPECT_TRUE(bitwise_equal(dict, before));
    EXPECT_FALSE(dict.contains("step"));
  }
  TensorDict dict = with(numbered(1), {{"mine", 1}});
  EXPECT_TRUE(fails_with(Tree::merge_values(dict, Value::Map{{"mine", 2}, {"n/below", 3}}),
                         ErrorCode::invalid_argument));
  EXPECT_EQ(dict.value("mine").as_i64(), 1);
}

// A peer that sends other names with each message does not fill the receiver's memory.
TEST(MergeValues, NewNamesForEverEndAtTheLimit) {
  TensorDict dict = numbered(1);
  Result<void> merged;
  for (std::size_t n = 0; merged && n < 1000; ++n)
    merged =
        Tree::merge_values(dict, Value::Map{{"name" + std::to_string(n), std::string(5000, 'v')}});
  EXPECT_TRUE(fails_with(merged, ErrorCode::limit_exceeded));
}

}  // namespace
}  // namespace tendon::test
