// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <tendon/tensor/shape.hpp>
#include <vector>

#include "support/expect.hpp"

namespace tendon {
namespace {

using test::fails_with;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsElements) {
  EXPECT_EQ(*Shape().element_count(), 1) << "a scalar has one element";
  EXPECT_EQ(*Shape({2, 3, 4}).element_count(), 24);
  EXPECT_EQ(*Shape({2, 0, 4}).element_count(), 0);
  EXPECT_EQ(*Shape({kMax}).element_count(), kMax);
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, RefusesProductsThatOverflow) {
  EXPECT_TRUE(fails_with(Shape({kMax, 2}).element_count(), ErrorCode::limit_exceeded, "2^63"));
  EXPECT_TRUE(fails_with(Shape({1ll << 32, 1ll << 31}).element_count(), ErrorCode::limit_exceeded));
  // A zero does not excuse the rest: strides are computed from it.
  EXPECT_TRUE(fails_with(Shape({0, kMax, 2}).element_count(), ErrorCode::limit_exceeded));
}

TEST(Shape, SizeInBytesHasTheSameLimit) {
  EXPECT_EQ(*Shape({3, 5}).size_bytes(DType::f64), 120u);
  EXPECT_EQ(*Shape({kMax}).size_bytes(DType::u8), static_cast<std::uint64_t>(kMax));
  EXPECT_TRUE(fails_with(Shape({kMax}).size_bytes(DType::u16), ErrorCode::limit_exceeded));
  EXPECT_TRUE(fails_with(Shape({1ll << 60}).size_bytes(DType::c128), ErrorCode::limit_exceeded));
}

TEST(Shape, MoreThan2To31ElementsAreLegal) {
  EXPECT_EQ(*Shape({3'000'000'000}).element_count(), 3'000'000'000);
}

TEST(Shape, LimitsOfDimensions) {
  const std::vector<std::int64_t> most(kMaxDimensions, 1);
  EXPECT_EQ(Shape::make(most).value().size(), kMaxDimensions);
  const std::vector<std::int64_t> more(kMaxDimensions + 1, 1);
  EXPECT_TRUE(fails_with(Shape::make(more), ErrorCode::limit_exceeded, "16"));
  EXPECT_TRUE(fails_with(Strides::make(more), ErrorCode::limit_exceeded, "16"));
  EXPECT_TRUE(fails_with(Shape::make(std::vector<std::int64_t>{2, -1}), ErrorCode::invalid_argument,
                         "dimension 1"));
  EXPECT_THROW(Shape({-1}), Exception);
}

TEST(Shape, Prefix) {
  EXPECT_TRUE(Shape({2, 3}).starts_with({}));
  EXPECT_TRUE(Shape({2, 3}).starts_with({2}));
  EXPECT_TRUE(Shape({2, 3}).starts_with({2, 3}));
  EXPECT_FALSE(Shape({2, 3}).starts_with({3}));
  EXPECT_FALSE(Shape({2}).starts_with({2, 3}));
}

TEST(Shape, CopiesAndComparesOnlyWhatItHas) {
  Shape a{1, 2, 3};
  const Shape b{7};
  a = b;
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 1u);
  EXPECT_NE(a, Shape({7, 7}));
  EXPECT_NE(a, Shape({8}));
}

TEST(Strides, RowMajor) {
  EXPECT_EQ(Strides::row_major({2, 3, 4}), Strides({12, 4, 1}));
  EXPECT_EQ(Strides::row_major({}), Strides());
  EXPECT_EQ(Strides::row_major({2, 0, 4}), Strides({4, 4, 1}));
}

}  // namespace
}  // namespace tendon
