// SPDX-License-Identifier: Apache-2.0
#include "channel/schema_table.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tendon::test {
namespace {

TEST(SchemaTable, ForgetsTheOldestWhenTheyAreTooMuch) {
  const auto schema = [](int leaves, int name) {
    std::vector<LeafSpec> made;
    for (int i = 0; i < leaves; ++i)
      made.push_back({std::to_string(name) + "-" + std::to_string(i), DType::u8, {1}});
    return Schema::make(made).value();
  };
  const std::uint64_t one = detail::SchemaTable::cost_bytes(*schema(10, 1));
  detail::SchemaTable table(4 * 3 * one);
  std::vector<std::shared_ptr<const Schema>> made;
  for (std::uint32_t n = 1; n <= 4; ++n) {
    made.push_back(schema(10, static_cast<int>(n)));
    EXPECT_EQ(table.next_number(), n);
    EXPECT_TRUE(table.add(n, made.back()));
  }
  EXPECT_EQ(table.number_of(made[0]), 0u);
  EXPECT_EQ(table.find(1), nullptr);
  for (std::uint32_t n = 2; n <= 4; ++n) {
    EXPECT_EQ(table.number_of(made[n - 1]), n);
    EXPECT_EQ(table.find(n), made[n - 1]);
  }
  // A schema that is larger than the limit is kept alone.
  const auto large = schema(1000, 9);
  EXPECT_TRUE(table.add(5, large));
  EXPECT_EQ(table.find(5), large);
  EXPECT_EQ(table.find(4), nullptr);
}

TEST(SchemaTable, KeepsSixtyFour) {
  detail::SchemaTable table(std::uint64_t{1} << 30);
  std::vector<std::shared_ptr<const Schema>> made;
  for (std::uint32_t n = 1; n <= detail::SchemaTable::kMaxSchemas + 1; ++n) {
    made.push_back(Schema::make({{"leaf " + std::to_string(n), DType::u8, {1}}}).value());
    EXPECT_TRUE(table.add(n, made.back()));
  }
  EXPECT_EQ(table.number_of(made[0]), 0u);
  EXPECT_EQ(table.number_of(made[1]), 2u);
  EXPECT_EQ(table.find(1), nullptr);
}

// Two receivers of one link: the share that one frees, by forgetting or at its end, is available to
// the other.
TEST(SchemaTable, TablesOfOneLinkDrawOnOneShare) {
  const auto schema = [](int name) {
    return Schema::make({{"leaf " + std::to_string(name), DType::u8, {1}}}).value();
  };
  const std::uint64_t one = detail::SchemaTable::cost_bytes(*schema(1));
  detail::HeldBytes held(3 * one, [] {});
  detail::SchemaTable small(4 * 2 * one, &held);  // room for two
  detail::SchemaTable other(std::uint64_t{1} << 30, &held);
  EXPECT_TRUE(small.add(1, schema(1)));
  EXPECT_TRUE(small.add(2, schema(2)));
  EXPECT_TRUE(small.add(3, schema(3))) << "in place of the first";
  EXPECT_EQ(held.bytes(), 2 * one);
  EXPECT_TRUE(other.add(1, schema(4)));
  EXPECT_FALSE(other.add(2, schema(5)));
  EXPECT_EQ(other.find(2), nullptr);
  EXPECT_NE(other.find(1), nullptr);
  EXPECT_EQ(held.bytes(), 3 * one);
  small.clear();
  EXPECT_EQ(small.find(3), nullptr);
  EXPECT_EQ(held.bytes(), one);
  EXPECT_TRUE(other.add(2, schema(5)));
  EXPECT_EQ(held.most_bytes(), 3 * one);
}

std::shared_ptr<const detail::Placement> placed(std::vector<std::uint8_t> leaves,
                                                unsigned char gpu = 7) {
  auto placement = std::make_shared<detail::Placement>();
  placement->leaves = std::move(leaves);
  placement->gpu.bytes.fill(gpu);
  return placement;
}

TEST(SchemaTable, OneSchemaHasANumberForEachPlacement) {
  detail::SchemaTable table(std::uint64_t{1} << 20);
  const auto make = [] {
    return Schema::make({{"a", DType::u8, {1}}, {"b", DType::u8, {1}}}).value();
  };
  const auto schema = make();
  const auto all = placed({1, 1});
  EXPECT_TRUE(table.add(1, schema, all));
  EXPECT_EQ(table.number_of(schema), 0u) << "in host memory it is another one";
  EXPECT_TRUE(table.add(2, schema));
  EXPECT_TRUE(table.add(3, schema, placed({0, 1})));
  EXPECT_TRUE(table.add(4, schema, placed({1, 1}, 8)));
  EXPECT_EQ(table.number_of(schema), 2u);
  EXPECT_EQ(table.number_of(make(), all.get()), 1u);
  EXPECT_EQ(table.number_of(make(), placed({1, 1}).get()), 1u) << "an equal one";
  EXPECT_EQ(table.number_of(schema, placed({0, 1}).get()), 3u);
  EXPECT_EQ(table.number_of(schema, placed({1, 1}, 8).get()), 4u);
  EXPECT_EQ(table.number_of(schema, placed({1, 0}).get()), 0u);
  EXPECT_EQ(table.placement(1), all);
  EXPECT_EQ(table.placement(2), nullptr);
  EXPECT_EQ(table.placement(9), nullptr);
}

TEST(SchemaTable, ForgetsPlacementsWithTheirSchemas) {
  detail::SchemaTable table(std::uint64_t{1} << 20);
  const auto schema = Schema::make({{"a", DType::u8, {1}}}).value();
  const auto placement = placed({1});
  EXPECT_TRUE(table.add(1, schema, placement));
  constexpr std::uint32_t kSamePlace = 1 + detail::SchemaTable::kMaxSchemas;
  EXPECT_TRUE(table.add(kSamePlace, schema));
  EXPECT_EQ(table.placement(1), nullptr);
  EXPECT_EQ(table.placement(kSamePlace), nullptr);
  EXPECT_EQ(table.number_of(schema, placement.get()), 0u);
  EXPECT_TRUE(table.add(kSamePlace + 1, schema, placement));
  EXPECT_EQ(table.placement(kSamePlace + 1), placement);
  table.clear();
  EXPECT_EQ(table.placement(kSamePlace + 1), nullptr);
  EXPECT_EQ(placement.use_count(), 1) << "nothing keeps it";
}

}  // namespace
}  // namespace tendon::test
