// SPDX-License-Identifier: Apache-2.0
#include "channel/receiver.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::ChannelReceiver;
using detail::Descriptor;
using detail::Features;
using detail::Incoming;
using detail::MessageKind;
using Fault = ChannelReceiver::Fault;

constexpr std::uint64_t kCap = 1 << 20;

struct Receiver {
  explicit Receiver(detail::Window window = {}) : receiver(5, window, kCap, schemas) {}
  Fault accept(Descriptor descriptor) {
    Incoming incoming;
    incoming.descriptor = descriptor;
    return receiver.accept(std::move(incoming));
  }
  detail::HeldBytes schemas{kCap, [] {}};
  detail::HeldBytes held{kCap, [] {}};
  ChannelReceiver receiver;
};

Descriptor data(std::uint64_t sequence, std::uint64_t bytes = 0) {
  return {.kind = MessageKind::data, .sequence = sequence, .payload_bytes = bytes};
}

TEST(ChannelReceiver, TakesInWhatRisesAndRefusesANumberThatComesAgain) {
  Receiver r;
  EXPECT_EQ(r.accept(data(1)), Fault::none);
  EXPECT_EQ(r.accept(data(5)), Fault::none) << "numbers may be left out";
  EXPECT_TRUE(r.receiver.is_known(5));
  EXPECT_FALSE(r.receiver.is_known(6));
  EXPECT_EQ(r.accept(data(5)), Fault::repeated);
  EXPECT_EQ(r.accept({.kind = MessageKind::schema, .sequence = 3}), Fault::repeated);
  EXPECT_EQ(r.accept({.kind = MessageKind::end}), Fault::none) << "an end has no number";
}

TEST(ChannelReceiver, AWindowOfMessagesMayWaitTwiceWithWhatIsNone) {
  Receiver r(detail::Window::said(4, 1000));
  std::uint64_t sequence = 0;
  for (int i = 0; i < 24; ++i) EXPECT_EQ(r.accept(data(++sequence)), Fault::none) << i;
  EXPECT_EQ(r.accept(data(++sequence)), Fault::beyond_window);
}

TEST(ChannelReceiver, TheWindowIsOfPayloadThatWaits) {
  Receiver r(detail::Window::said(100, 1000));
  EXPECT_TRUE(r.receiver.admits(data(1, 900)));
  EXPECT_EQ(r.accept(data(1, 900)), Fault::none);
  EXPECT_FALSE(r.receiver.admits(data(2, 200)));
  EXPECT_TRUE(r.receiver.admits({.kind = MessageKind::schema, .payload_bytes = 200}));
  r.receiver.on_aborted({.kind = MessageKind::schema, .payload_bytes = 900});
  EXPECT_EQ(r.receiver.waiting_bytes(), 900u);
  r.receiver.on_aborted(data(1, 900));
  EXPECT_TRUE(r.receiver.admits(data(2, 200)));
}

TEST(ChannelReceiver, WhatIsTakenGivesBackItsShareAndIsCredited) {
  Receiver r(detail::Window::said(4, 1000));
  for (std::uint64_t n = 1; n <= 2; ++n) {
    Incoming incoming;
    incoming.descriptor = data(n, 10);
    incoming.held = detail::HeldBytes::Share(r.held, 64);
    EXPECT_EQ(r.receiver.accept(std::move(incoming)), Fault::none);
  }
  EXPECT_EQ(r.receiver.held_bytes(), 128u);
  EXPECT_EQ(r.receiver.take_front().pipe, 0u);
  EXPECT_EQ(r.held.bytes(), 64u);
  EXPECT_EQ(r.receiver.pop_front().descriptor.sequence, 1u);
  const Descriptor credit = r.receiver.take_front();
  EXPECT_EQ(credit.pipe, 5u);
  EXPECT_EQ(credit.sequence, 2u);
  EXPECT_EQ(credit.payload_bytes, 20u);
  EXPECT_EQ(r.receiver.taken_messages(), 2u);
  EXPECT_EQ(r.receiver.pop_front().descriptor.sequence, 2u);
  EXPECT_TRUE(r.receiver.empty());
}

TEST(ChannelReceiver, ClearingGivesBackEverythingButIsNotCredited) {
  Receiver r;
  Incoming incoming;
  incoming.descriptor = data(1, 10);
  incoming.held = detail::HeldBytes::Share(r.held, 64);
  EXPECT_EQ(r.receiver.accept(std::move(incoming)), Fault::none);
  EXPECT_EQ(r.receiver.clear(), 1u);
  EXPECT_EQ(r.held.bytes(), 0u);
  EXPECT_EQ(r.receiver.waiting_bytes(), 0u);
  EXPECT_EQ(r.receiver.taken_messages(), 0u);
  EXPECT_TRUE(r.receiver.is_known(1));
}

TEST(ChannelReceiver, ReadsSchemasWithinTheShareOfItsLink) {
  Receiver r;
  const auto schema = Schema::make({{"x", DType::u8, {1}}}).value();
  std::vector<std::byte> bytes(schema->encoding().begin(), schema->encoding().end());
  Incoming incoming;
  incoming.descriptor = {
      .kind = MessageKind::schema, .sequence = 1, .schema = 3, .payload_bytes = bytes.size()};
  incoming.body.data = bytes.data();
  ASSERT_TRUE(succeeds(r.receiver.read_schema(incoming)));
  ASSERT_NE(r.receiver.schema(3), nullptr);
  EXPECT_EQ(*r.receiver.schema(3), *schema);
  EXPECT_NE(r.schemas.bytes(), 0u);
  r.receiver.forget_schemas();
  EXPECT_EQ(r.receiver.schema(3), nullptr);
  EXPECT_EQ(r.schemas.bytes(), 0u);
  {
    const detail::HeldBytes::Share others(r.schemas, kCap - 100);
    EXPECT_TRUE(
        fails_with(r.receiver.read_schema(incoming), ErrorCode::limit_exceeded, "link_cap_bytes"));
  }
  // The announcement is refused before it is decoded.
  bytes.assign(kCap / 16 + 1, std::byte{0xff});
  incoming.descriptor.payload_bytes = bytes.size();
  incoming.body.data = bytes.data();
  EXPECT_TRUE(
      fails_with(r.receiver.read_schema(incoming), ErrorCode::limit_exceeded, "link_cap_bytes"));
  bytes.resize(100);
  incoming.descriptor.payload_bytes = bytes.size();
  EXPECT_FALSE(r.receiver.read_schema(incoming)) << "it is none";
}

/// An announcement of a schema of two leaves, and of their places.
struct Announcement {
  Announcement(std::uint32_t number, std::initializer_list<unsigned char> places) {
    const auto schema = Schema::make({{"a", DType::u8, {1}}, {"b", DType::u8, {1}}}).value();
    body.assign(schema->encoding().begin(), schema->encoding().end());
    incoming.descriptor = {.kind = MessageKind::schema,
                           .sequence = number,
                           .schema = number,
                           .payload_bytes = body.size(),
                           .values_bytes = static_cast<std::uint32_t>(places.size())};
    for (const unsigned char place : places) body.push_back(std::byte{place});
    incoming.body.data = body.data();
  }
  std::vector<std::byte> body;
  Incoming incoming;
};

TEST(ChannelReceiver, ReadsWhereTheLeavesOfASchemaLay) {
  Receiver r;
  detail::DeviceOffers peer;
  detail::DeviceOffers offers;
  detail::cuda::Uuid gpu{};
  gpu.bytes.fill(3);
  (void)peer.number_of(gpu, [&](const Descriptor& word) {
    EXPECT_EQ(offers.take_in(word, Features::of_minor(2)), "");
  });
  ASSERT_TRUE(succeeds(r.receiver.read_schema(Announcement(1, {}).incoming, &offers)));
  ASSERT_TRUE(succeeds(r.receiver.read_schema(Announcement(2, {0, 1}).incoming, &offers)));
  ASSERT_TRUE(succeeds(r.receiver.read_schema(Announcement(3, {0, 0}).incoming, &offers)));
  EXPECT_EQ(*r.receiver.schema(1), *r.receiver.schema(2)) << "the places are no part of it";
  EXPECT_EQ(r.receiver.placement(1), nullptr);
  EXPECT_EQ(r.receiver.placement(3), nullptr);
  ASSERT_NE(r.receiver.placement(2), nullptr);
  EXPECT_EQ(r.receiver.placement(2)->gpu, gpu);
  EXPECT_FALSE(r.receiver.placement(2)->is_on_gpu(0));
  EXPECT_TRUE(r.receiver.placement(2)->is_on_gpu(1));
  r.receiver.forget_schemas();
  EXPECT_EQ(r.receiver.placement(2), nullptr);
}

TEST(ChannelReceiver, APlacementThatCannotBeReadIsTheReasonOfItsMessages) {
  Receiver r;
  const detail::DeviceOffers offers;
  EXPECT_TRUE(fails_with(r.receiver.read_schema(Announcement(1, {0, 1}).incoming, &offers),
                         ErrorCode::corrupt_data, "not offered"));
  EXPECT_EQ(r.receiver.schema(1), nullptr);
  EXPECT_EQ(r.receiver.why_unknown(1).code, ErrorCode::corrupt_data);
  EXPECT_NE(r.receiver.why_unknown(1).detail.find("its schema was refused"), std::string::npos);
  EXPECT_TRUE(fails_with(r.receiver.read_schema(Announcement(2, {0}).incoming, &offers),
                         ErrorCode::corrupt_data, "of a schema of 2"));
  EXPECT_TRUE(succeeds(r.receiver.read_schema(Announcement(3, {}).incoming, &offers)));
  EXPECT_EQ(r.schemas.bytes(), detail::SchemaTable::cost_bytes(*r.receiver.schema(3)))
      << "what was refused holds nothing";
}

TEST(ChannelReceiver, WithoutGpusASchemaOfOneIsRefusedAndOthersAreRead) {
  Receiver r;
  EXPECT_TRUE(fails_with(r.receiver.read_schema(Announcement(1, {1, 0}).incoming),
                         ErrorCode::unsupported_device, "only pipes and topics take"));
  EXPECT_EQ(r.receiver.schema(1), nullptr);
  EXPECT_EQ(r.receiver.why_unknown(1).code, ErrorCode::unsupported_device);
  EXPECT_TRUE(succeeds(r.receiver.read_schema(Announcement(2, {}).incoming)));
  EXPECT_NE(r.receiver.schema(2), nullptr);
  EXPECT_EQ(r.receiver.why_unknown(1).code, ErrorCode::unsupported_device) << "for each message";
}

}  // namespace
}  // namespace tendon::test
