// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/schema.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "support/expect.hpp"
#include "support/random_dict.hpp"
#include "tensor/schema_builder.hpp"

namespace tendon {
namespace {

using test::fails_with;
using test::succeeds;
using Encoding = std::vector<std::byte>;

Encoding copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

std::string hex(Bytes bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kHex[std::to_integer<unsigned>(byte) >> 4];
    text += kHex[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

TensorDict example() {
  TensorDict info(Shape{2});
  info.set("reward", Tensor::zeros(DType::f32, {2, 1}).value());
  TensorDict dict(Shape{2}, {"time"});
  dict.set("obs", Tensor::zeros(DType::u8, {2, 3}).value());
  dict.set("info", info);
  dict.set("w", Tensor::zeros(DType::f64, {}).value(), Batching::exempt);
  dict.set("info/step", 7);
  return dict;
}

// The bytes that docs/protocol.md describes; they and the hash must never change.
TEST(Schema, GoldenEncoding) {
  const auto schema = example().schema();
  EXPECT_EQ(hex(schema->encoding()),
            "01"  // version
            "01"
            "0200000000000000"  // batch size [2]
            "01"
            "04"
            "74696d65"  // named: "time"
            "03000000"  // three entries
            "01"
            "03"
            "6f6273"
            "02"  // leaf "obs", u8
            "02"
            "0200000000000000"
            "0300000000000000"  // shape [2, 3]
            "02"
            "04"
            "696e666f"  // node "info"
            "01"
            "0200000000000000"
            "00"
            "01000000"  // batch size [2], unnamed, one entry
            "01"
            "06"
            "726577617264"
            "0c"  // leaf "reward", f32
            "02"
            "0200000000000000"
            "0100000000000000"  // shape [2, 1]
            "03"
            "01"
            "77"
            "0d"
            "00");  // exempt leaf "w", f64, shape []
  EXPECT_EQ(to_string(schema->hash()), "26af07766c568f16d2d67024f279fce3");
}

TEST(Schema, DescribesLeavesNodesAndPlaces) {
  const auto schema = example().schema();
  ASSERT_EQ(schema->leaves().size(), 3u);
  EXPECT_EQ(schema->leaves()[1].path, "info/reward");
  EXPECT_EQ(schema->leaves()[1].dtype, DType::f32);
  EXPECT_EQ(schema->leaves()[1].shape, Shape({2, 1}));
  EXPECT_EQ(schema->leaves()[1].size_bytes, 8u);
  EXPECT_EQ(schema->leaves()[2].batching, Batching::exempt);
  EXPECT_EQ(schema->size_bytes(), 6u + 8 + 8);
  ASSERT_EQ(schema->nodes().size(), 2u);
  EXPECT_EQ(schema->nodes()[0].path, "");
  EXPECT_EQ(schema->nodes()[0].dimension_names, std::vector<std::string>({"time"}));
  EXPECT_EQ(schema->nodes()[1].path, "info");
  EXPECT_EQ(schema->find("info/reward"), 1u);
  EXPECT_EQ(schema->find("info"), std::nullopt);
  EXPECT_EQ(schema->find(""), std::nullopt);
  EXPECT_EQ(schema->find_node("info"), 1u);
  EXPECT_EQ(schema->find_node(""), 0u);
  EXPECT_EQ(schema->find_node("obs"), std::nullopt);
}

TEST(Schema, LayoutsPlaceEveryLeaf) {
  const auto schema = Schema::make({{"a", DType::u8, {3}},
                                    {"none", DType::f64, {0}},
                                    {"b", DType::f32, {5}},
                                    {"c", DType::u64, {1}},
                                    {"d", DType::boolean, {1}},
                                    {"e", DType::f32, {1}}})
                          .value();
  const PackedLayout& aligned = schema->layout(Layout::aligned);
  EXPECT_EQ(aligned.offsets, (std::vector<std::uint64_t>{0, 64, 64, 128, 192, 256}));
  EXPECT_EQ(aligned.total_bytes, 260u);
  const PackedLayout& file = schema->layout(Layout::safetensors);
  EXPECT_EQ(file.order, (std::vector<std::uint32_t>{3, 1, 2, 5, 0, 4}));
  EXPECT_EQ(file.offsets, (std::vector<std::uint64_t>{32, 8, 8, 0, 35, 28}));
  EXPECT_EQ(file.total_bytes, 36u);
  EXPECT_EQ(&schema->layout(Layout::safetensors), &file) << "resolved once";
  const PackedLayout& tensordict = schema->layout(Layout::tensordict);
  EXPECT_EQ(tensordict.order, aligned.order);
  EXPECT_EQ(tensordict.offsets, (std::vector<std::uint64_t>{0, 8, 8, 32, 40, 48}));
  EXPECT_EQ(tensordict.total_bytes, 56u) << "the last one is padded too";
}

TEST(Schema, MakeBuildsTheTreeOfItsPaths) {
  const auto schema =
      Schema::make({{"a/x", DType::u8, {1}}, {"b", DType::u8, {2}}, {"a/y/z", DType::u8, {3}}})
          .value();
  ASSERT_EQ(schema->leaves().size(), 3u);
  EXPECT_EQ(schema->leaves()[0].path, "a/x");
  EXPECT_EQ(schema->leaves()[1].path, "a/y/z") << "depth first";
  EXPECT_EQ(schema->leaves()[2].path, "b");
  EXPECT_TRUE(fails_with(Schema::make({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(Schema::make({{"a", DType::u8, {1}}, {"a/b", DType::u8, {1}}}),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(Schema::make({{"", DType::u8, {1}}}), ErrorCode::invalid_argument));
  EXPECT_TRUE(succeeds(Schema::make({})));
}

TEST(Schema, EqualityFollowsEncoding) {
  EXPECT_EQ(*example().schema(), *example().schema());
  TensorDict other = example();
  other.set("obs", Tensor::zeros(DType::i8, {2, 3}).value());
  EXPECT_NE(*other.schema(), *example().schema());
  EXPECT_NE(other.schema()->hash(), example().schema()->hash());
  TensorDict values = example();
  values.set("info/step", "another");
  EXPECT_EQ(*values.schema(), *example().schema()) << "values are no part of it";
}

TEST(Schema, DecodeRefusesEveryTruncationAndAddition) {
  const Encoding whole = copy_of(example().schema()->encoding());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Encoding part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(fails_with(Schema::decode(part), ErrorCode::corrupt_data)) << size;
  }
  Encoding more = whole;
  more.push_back(std::byte{0});
  EXPECT_TRUE(fails_with(Schema::decode(more), ErrorCode::corrupt_data, "1 bytes"));
}

TEST(Schema, DecodeRefusesWrongNumbers) {
  const Encoding whole = copy_of(example().schema()->encoding());
  const struct {
    std::size_t at;
    std::uint8_t byte;
    ErrorCode code;
    const char* what;
  } kCases[] = {
      {0, 0, ErrorCode::version_mismatch, "0"},
      {0, 2, ErrorCode::version_mismatch, "2"},
      {1, 17, ErrorCode::limit_exceeded, "17"},
      {9, 0x80, ErrorCode::corrupt_data, "negative"},
      {10, 2, ErrorCode::corrupt_data, "dimension names"},
      {12, 0xff, ErrorCode::corrupt_data, "UTF-8"},
      {19, 0xff, ErrorCode::corrupt_data, ""},
      {20, 0, ErrorCode::corrupt_data, "kind 0"},
      {20, 4, ErrorCode::corrupt_data, "kind 4"},
      {25, 0, ErrorCode::unsupported_dtype, "type 0"},
      {25, 25, ErrorCode::unsupported_dtype, "type 25"},
      {27, 3, ErrorCode::corrupt_data, "batch size"},
  };
  for (const auto& test : kCases) {
    Encoding bytes = whole;
    bytes[test.at] = static_cast<std::byte>(test.byte);
    EXPECT_TRUE(fails_with(Schema::decode(bytes), test.code, test.what))
        << test.at << " " << int{test.byte};
  }
}

TEST(Schema, DecodeRefusesAnEntryTwiceAndSizesBeyondCounting) {
  detail::SchemaBuilder twice(Shape(), {});
  ASSERT_TRUE(succeeds(twice.add_leaf("a", DType::u8, {1}, Batching::batched)));
  ASSERT_TRUE(succeeds(twice.add_leaf("a", DType::u8, {1}, Batching::batched)));
  EXPECT_TRUE(fails_with(std::move(twice).finish(), ErrorCode::invalid_argument, "'a'"));

  detail::SchemaBuilder both(Shape(), {});
  ASSERT_TRUE(succeeds(both.add_leaf("a", DType::u8, {1}, Batching::batched)));
  ASSERT_TRUE(succeeds(both.begin_node("a", {}, {})));
  both.end_node();
  EXPECT_TRUE(fails_with(std::move(both).finish(), ErrorCode::invalid_argument, "'a'"));

  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  detail::SchemaBuilder large(Shape(), {});
  ASSERT_TRUE(succeeds(large.add_leaf("a", DType::u8, {kMax}, Batching::batched)));
  EXPECT_TRUE(fails_with(large.add_leaf("b", DType::u8, {1}, Batching::batched),
                         ErrorCode::limit_exceeded, "2^63"));
}

TEST(Schema, NamedWithoutNamesIsNotCanonical) {
  // Batch size [2], "named", and the one name is empty: the same schema has a shorter encoding.
  const std::uint8_t bytes[] = {1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
  EXPECT_TRUE(fails_with(Schema::decode(std::as_bytes(std::span(bytes))), ErrorCode::corrupt_data,
                         "canonical"));
}

// Small encodings must not cost much memory: 64 Ki leaves below a path of 4 KiB would be 256 MiB of
// paths.
TEST(Schema, PathsOfOneSchemaAreLimitedTogether) {
  detail::SchemaBuilder builder(Shape(), {});
  for (int i = 0; i < 15; ++i)
    ASSERT_TRUE(succeeds(builder.begin_node(std::string(kMaxNameBytes, 'n'), {}, {})));
  Result<void> added;
  std::size_t count = 0;
  for (; added && count < kMaxLeaves; ++count)
    added = builder.add_leaf(std::to_string(count), DType::u8, {1}, Batching::batched);
  EXPECT_TRUE(fails_with(added, ErrorCode::limit_exceeded, "paths"));
  EXPECT_LT(count, 5000u);
}

TEST(Schema, LeavesAtTheLimitAndBeyond) {
  detail::SchemaBuilder builder(Shape(), {});
  for (std::size_t i = 0; i < kMaxLeaves; ++i)
    ASSERT_TRUE(succeeds(builder.add_leaf(std::to_string(i), DType::u8, {}, Batching::batched)));
  EXPECT_TRUE(fails_with(builder.add_leaf("more", DType::u8, {}, Batching::batched),
                         ErrorCode::limit_exceeded, "65536"));
  const auto schema = std::move(builder).finish().value();
  EXPECT_EQ(*Schema::decode(schema->encoding()).value(), *schema);
  // One leaf more by hand: the number of entries, and a leaf at the end.
  Encoding bytes = copy_of(schema->encoding());
  bytes[3] = std::byte{1};
  for (const int byte : std::initializer_list<int>{1, 1, 'x', 2, 0})
    bytes.push_back(static_cast<std::byte>(byte));
  EXPECT_TRUE(fails_with(Schema::decode(bytes), ErrorCode::limit_exceeded, "65536"));
}

TEST(Schema, NodesAndDepthAtTheLimitAndBeyond) {
  detail::SchemaBuilder deep(Shape(), {});
  for (std::size_t i = 0; i < kMaxDepth; ++i) ASSERT_TRUE(succeeds(deep.begin_node("d", {}, {})));
  EXPECT_TRUE(fails_with(deep.begin_node("d", {}, {}), ErrorCode::limit_exceeded, "32"));
  EXPECT_TRUE(fails_with(deep.add_leaf("d", DType::u8, {}, Batching::batched),
                         ErrorCode::limit_exceeded, "32"));

  // Nesting a million levels costs the decoder no stack.
  Encoding bytes{std::byte{1}};
  for (int i = 0; i < 1'000'000; ++i) {
    for (const int byte : std::initializer_list<int>{0, 0, 1, 0, 0, 0, 2, 1, 'd'})
      bytes.push_back(static_cast<std::byte>(byte));
  }
  EXPECT_TRUE(fails_with(Schema::decode(bytes), ErrorCode::limit_exceeded, "32"));

  detail::SchemaBuilder wide(Shape(), {});
  for (std::size_t i = 1; i < kMaxNodes; ++i) {
    ASSERT_TRUE(succeeds(wide.begin_node(std::to_string(i), {}, {})));
    wide.end_node();
  }
  EXPECT_TRUE(fails_with(wide.begin_node("more", {}, {}), ErrorCode::limit_exceeded, "65536"));
}

TEST(Schema, EncodingAboveTheLimitIsRefusedUnread) {
  EXPECT_TRUE(fails_with(Schema::decode(Encoding(kMaxSchemaBytes + 1)), ErrorCode::limit_exceeded,
                         "16777216"));
}

TEST(Schema, DifferenceIsToldInWords) {
  const auto expected = example().schema();
  EXPECT_EQ(describe_difference(*expected, *example().schema()), "");
  const auto difference = [&](auto change) {
    TensorDict dict = example();
    change(dict);
    return describe_difference(*expected, *dict.schema());
  };
  EXPECT_EQ(difference([](TensorDict& d) {
              d.set("obs", Tensor::zeros(DType::u8, {2, 4}).value());
            }),
            "leaf 'obs' has shape [2, 4], expected [2, 3]");
  EXPECT_EQ(difference([](TensorDict& d) {
              d.set("obs", Tensor::zeros(DType::i8, {2, 3}).value());
            }),
            "leaf 'obs' is i8, expected u8");
  EXPECT_EQ(difference([](TensorDict& d) { d.erase("info/reward").value(); }),
            "leaf 'info/reward' is missing");
  EXPECT_EQ(difference([](TensorDict& d) { d.set("z", Tensor::zeros(DType::u8, {2}).value()); }),
            "leaf 'z' is not expected");
  EXPECT_EQ(difference([](TensorDict& d) {
              const Tensor obs = d["obs"];
              d.erase("obs").value();
              d.set("obs", obs);
            }),
            "leaf 0 is 'info/reward', expected 'obs' (the order of leaves counts)");
  EXPECT_EQ(difference([](TensorDict& d) { d.set("empty", TensorDict(Shape{2})); }),
            "TensorDict 'empty' is not expected");
  EXPECT_EQ(describe_difference(*TensorDict(Shape{2}).schema(), *TensorDict(Shape{3}).schema()),
            "the root has batch size [3], expected [2]");
  EXPECT_EQ(
      describe_difference(*TensorDict(Shape{2}, {"t"}).schema(), *TensorDict(Shape{2}).schema()),
      "the root has other names of batch dimensions");
}

TEST(SchemaProperty, RandomSchemasComeBack) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::RandomDicts random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto schema = random.dict(test::RandomDicts::Types::all).schema();
    const auto decoded = Schema::decode(schema->encoding());
    ASSERT_TRUE(succeeds(decoded));
    ASSERT_EQ(**decoded, *schema);
    ASSERT_EQ((*decoded)->hash(), schema->hash());
    ASSERT_EQ(describe_difference(*schema, **decoded), "");
    ASSERT_EQ((*decoded)->leaves().size(), schema->leaves().size());
    for (const Layout layout : {Layout::aligned, Layout::safetensors, Layout::tensordict})
      ASSERT_EQ((*decoded)->layout(layout).offsets, schema->layout(layout).offsets);
  }
}

TEST(SchemaProperty, ChangedBytesNeverGiveTheSameSchema) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::RandomDicts random(seed);
  for (int round = 0; round < 1000; ++round) {
    const auto schema = random.dict(test::RandomDicts::Types::all).schema();
    Encoding bytes = copy_of(schema->encoding());
    const auto at =
        static_cast<std::size_t>(random.pick(0, static_cast<std::int64_t>(bytes.size()) - 1));
    bytes[at] ^= static_cast<std::byte>(random.pick(1, 255));
    const auto decoded = Schema::decode(bytes);
    if (!decoded) continue;
    ASSERT_NE(**decoded, *schema);
    ASSERT_NE(describe_difference(*schema, **decoded), "");
  }
}

}  // namespace
}  // namespace tendon
