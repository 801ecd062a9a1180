// SPDX-License-Identifier: Apache-2.0
// Samples as messages of plain Zenoh, and back.
#include "fabric/plain/plain_codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "fabric/samples/sample_header.hpp"
#include "support/expect.hpp"
#include "support/safetensors_text.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;

ContextId some_context() {
  ContextId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(i + 1);
  return id;
}

std::shared_ptr<KeptSample> kept(const TensorDict& tensors) {
  auto sample = std::make_shared<KeptSample>();
  sample->header = {.sequence = 7, .stamp = 8, .incarnation = 9};
  const auto no_slot = [](std::uint64_t) -> Result<std::shared_ptr<const PublishedSlot>> {
    return Error{ErrorCode::resource_exhausted, "test", "small samples need no slot"};
  };
  EXPECT_TRUE(succeeds(sample->pack(tensors, sizeof(SampleHeader), no_slot)));
  return sample;
}

TensorDict a_cup() {
  TensorDict tensors;
  tensors.set("position", Tensor::of<float>({3}, {1, 2, 3}));
  tensors.set("hand/closed", Tensor::of<std::uint8_t>({2}, {0, 1}));
  tensors.set("label", "a cup");
  return tensors;
}

PlainForm up_to(std::uint64_t most_bytes) { return {.most_bytes = most_bytes}; }

TEST(PlainCodec, TheAttachmentHasThisLayout) {
  TensorDict tensors;
  tensors.set("x", Tensor::of<std::uint8_t>({1}, {1}));
  const auto message = to_plain(kept(tensors), some_context(), 5, up_to(kMaxPlainBytes)).value();
  const std::string schema(as_text(std::as_bytes(std::span(tensors.schema()->hash().bytes))));
  const std::string expected =
      std::string("tendon\0\1", 8) + std::string("\7\0\0\0\0\0\0\0", 8) +
      std::string("\10\0\0\0\0\0\0\0", 8) + std::string("\11\0\0\0\0\0\0\0", 8) +
      "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20" + std::string("\5\0\0\0\0\0\0\0", 8) + schema;
  EXPECT_EQ(as_text(message.attachment.bytes()), expected);
  EXPECT_EQ(message.encoding, "application/octet-stream;safetensors");
  const auto origin = read_plain_origin(message.attachment.bytes()).value();
  ASSERT_TRUE(origin.has_value());
  EXPECT_EQ(origin->sequence, 7U);
  EXPECT_EQ(origin->context, some_context());
  // Bytes that a later version appends are skipped.
  const std::string longer = expected + "more";
  EXPECT_EQ(read_plain_origin(as_bytes(longer)).value(), origin);
}

TEST(PlainCodec, ASampleThatLayOnAGpuIsNotPut) {
  const auto sample = kept(a_cup());
  sample->message.placement = std::make_shared<const Placement>(Placement{{1, 0}, {}});
  EXPECT_TRUE(fails_with(to_plain(sample, some_context(), 5, up_to(kMaxPlainBytes)),
                         ErrorCode::unsupported_device, "plain Zenoh peers"));
}

TEST(PlainCodec, AttachmentsOfOthersSayNothing) {
  for (const std::string& text : {std::string(), std::string("tendon"), std::string("tendons\1"),
                                  std::string(72, '\0'), std::string("{\"who\":\"a robot\"}")}) {
    const auto origin = read_plain_origin(as_bytes(text));
    ASSERT_TRUE(succeeds(origin)) << text;
    EXPECT_FALSE(origin->has_value()) << text;
  }
}

TEST(PlainCodec, AttachmentsThatBreakTheirLayoutAreRefused) {
  PlainOrigin origin{.sequence = 1, .context = {}, .schema = {}};
  const auto bytes = [&] { return std::as_bytes(std::span(&origin, 1)); };
  EXPECT_TRUE(succeeds(read_plain_origin(bytes())));
  EXPECT_TRUE(fails_with(read_plain_origin(bytes().first(sizeof origin - 1)),
                         ErrorCode::protocol_violation, "71 bytes"));
  EXPECT_TRUE(fails_with(read_plain_origin(bytes().first(origin.mark.size())),
                         ErrorCode::protocol_violation));
  origin.sequence = 0;
  EXPECT_TRUE(fails_with(read_plain_origin(bytes()), ErrorCode::protocol_violation, "sequence"));
  origin.sequence = 1;
  origin.version = 0;
  EXPECT_TRUE(fails_with(read_plain_origin(bytes()), ErrorCode::protocol_violation, "version"));
}

TEST(PlainCodec, ATensorDictComesBackWhole) {
  const TensorDict cup = a_cup();
  const auto message = to_plain(kept(cup), some_context(), 5, up_to(kMaxPlainBytes)).value();
  const TensorDict back = from_plain(message.payload, nullptr).value();
  EXPECT_EQ(*back.schema(), *cup.schema());
  EXPECT_EQ(back.find("hand/closed").value().span<const std::uint8_t>()[1], 1);
  EXPECT_EQ(*back.values(), *cup.values());
}

TEST(PlainCodec, RawBytesStayWhereTheyAre) {
  auto sample = std::make_shared<KeptSample>();
  sample->header = {.sequence = 1};
  SharedMessage message;
  message.descriptor.kind = MessageKind::bytes;
  message.descriptor.payload_bytes = 5;
  ASSERT_TRUE(succeeds(sample->make_room(std::move(message), sizeof(SampleHeader), nullptr)));
  std::memcpy(sample->memory().data(), "hello", 5);
  const auto plain = to_plain(sample, some_context(), 5, up_to(5)).value();
  EXPECT_EQ(as_text(plain.payload.bytes()), "hello");
  EXPECT_EQ(plain.payload.data(), sample->memory().data());
  EXPECT_EQ(plain.encoding, "zenoh/bytes");
  EXPECT_EQ(read_plain_origin(plain.attachment.bytes()).value()->schema, SchemaHash());
  EXPECT_TRUE(
      fails_with(to_plain(sample, some_context(), 5, up_to(4)), ErrorCode::message_too_large));
}

TEST(PlainCodec, TheHeaderCountsInTheSize) {
  const auto sample = kept(a_cup());
  const auto message = to_plain(sample, some_context(), 5, up_to(kMaxPlainBytes)).value();
  const std::uint64_t size = message.payload.size_bytes();
  EXPECT_TRUE(succeeds(to_plain(sample, some_context(), 5, up_to(size))));
  EXPECT_TRUE(fails_with(to_plain(sample, some_context(), 5, up_to(size - 1)),
                         ErrorCode::message_too_large, std::to_string(size)));
}

TEST(PlainCodec, RawBytesHaveTheEncodingThatTheirPublisherNames) {
  const PlainForm form{.encoding = "application/json", .most_bytes = 8};
  const std::string text = R"({"n": 1})";
  const auto bare = to_bare(as_bytes(text), form).value();
  EXPECT_EQ(as_text(bare.payload.bytes()), text);
  EXPECT_NE(static_cast<const void*>(bare.payload.data()), text.data());
  EXPECT_EQ(bare.encoding, "application/json");
  EXPECT_EQ(bare.attachment.size_bytes(), 0U);
  EXPECT_TRUE(fails_with(to_bare(as_bytes(text + " "), form), ErrorCode::message_too_large, "9"));
  EXPECT_TRUE(fails_with(to_bare(a_cup(), form), ErrorCode::message_too_large));
  const auto tensors = to_bare(a_cup(), up_to(kMaxPlainBytes)).value();
  EXPECT_EQ(tensors.encoding, "application/octet-stream;safetensors");
  EXPECT_EQ(*from_plain(tensors.payload, nullptr).value().schema(), *a_cup().schema());
}

TEST(PlainCodec, WhatAStrangerPutComesInTheFormThatIsTaken) {
  const Storage file =
      safetensors_text(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "abc");
  const auto taken = [](const Storage& payload, PlainContent content) {
    return from_plain(payload, nullptr, content);
  };
  EXPECT_TRUE(taken(file, PlainContent::tensors).value().tensors.has_value());
  EXPECT_TRUE(taken(file, PlainContent::both).value().tensors.has_value());
  const auto bytes = taken(file, PlainContent::bytes).value();
  EXPECT_FALSE(bytes.tensors.has_value());
  EXPECT_EQ(as_text(bytes.bytes.bytes()), as_text(file.bytes()));
  EXPECT_NE(bytes.bytes.data(), file.data());
  for (const std::string& text : {std::string(), std::string("{}"), std::string(8, '\xff')}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(taken(storage_of(text), PlainContent::tensors).has_value());
    const auto both = taken(storage_of(text), PlainContent::both).value();
    EXPECT_FALSE(both.tensors.has_value());
    EXPECT_EQ(as_text(both.bytes.bytes()), text);
  }
}

TEST(PlainCodec, TensorsOfAStrangerAreCopied) {
  const Storage payload =
      safetensors_text(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "abc");
  const TensorDict tensors = from_plain(payload, nullptr).value();
  const LeafView view = leaf_view(tensors, 0);
  EXPECT_EQ(as_text({view.data, view.size_bytes}), "abc");
  EXPECT_TRUE(view.data < payload.data() || view.data >= payload.data() + payload.size_bytes());
}

// A writer of safetensors sorts the tensors in its own order.
TEST(PlainCodec, ASchemaIsMetInWhateverOrder) {
  const auto wanted = Schema::make({{"b", DType::u8, {1}}, {"a", DType::u8, {2}}}).value();
  const Storage payload =
      safetensors_text(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                       "aab");
  const TensorDict tensors = from_plain(payload, wanted).value();
  EXPECT_EQ(tensors.schema()->hash(), wanted->hash());
  EXPECT_EQ(as_text(tensors.find("a").value().bytes()), "aa");
  EXPECT_EQ(as_text(tensors.find("b").value().bytes()), "b");
}

TEST(PlainCodec, WhatDoesNotMeetASchemaSaysWhy) {
  const auto a = [](std::int64_t size, DType dtype = DType::u8) {
    return Schema::make({{"a", dtype, {size}}}).value();
  };
  const Storage payload =
      safetensors_text(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "aa");
  EXPECT_TRUE(succeeds(from_plain(payload, a(2))));
  const auto differs = [&](const std::shared_ptr<const Schema>& schema, std::string_view why) {
    return fails_with(from_plain(payload, schema), ErrorCode::schema_mismatch, why);
  };
  EXPECT_TRUE(differs(a(3), "another type or shape"));
  EXPECT_TRUE(differs(a(2, DType::i8), "another type or shape"));
  EXPECT_TRUE(differs(Schema::make({{"b", DType::u8, {2}}}).value(), "no tensor 'b'"));
  EXPECT_TRUE(differs(Schema::make(std::span<const LeafSpec>()).value(), "1 tensors, not 0"));
}

TEST(PlainCodec, WhatIsNoSafetensorsIsRefused) {
  for (const std::string& text : {std::string(), std::string("hello"), std::string(8, '\xff'),
                                  std::string("\2\0\0\0\0\0\0\0{}x", 11)}) {
    EXPECT_FALSE(from_plain(storage_of(text), nullptr).has_value()) << text;
  }
}

}  // namespace
}  // namespace tendon::test
