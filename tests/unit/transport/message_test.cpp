// SPDX-License-Identifier: Apache-2.0
#include "transport/message.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <tendon/session/limits.hpp>
#include <vector>

#include "transport/private_body.hpp"

namespace tendon::detail {
namespace {

std::vector<std::byte> pattern(std::size_t size_bytes, unsigned seed) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + seed * 7 + i / 251) & 0xff);
  return bytes;
}

struct Fixture {
  std::vector<std::byte> memory = pattern(5000, 1);
  std::vector<std::byte> values = pattern(33, 2);
  std::vector<std::byte> header = pattern(17, 3);
  Tensor strided;
  std::vector<BodyPart> parts;
  std::vector<std::byte> expected;
  SendOp op;

  Fixture() {
    const Tensor table = Tensor::empty(DType::u16, {20, 30}).value();
    for (std::uint16_t i = 0; i < 600; ++i)
      std::memcpy(table.mutable_bytes().data() + i * 2, &i, 2);
    strided = table.transpose(0, 1).value();
    parts = {{3, Bytes(memory).first(1000), nullptr, 1000},
             {1003, {}, nullptr, 0},
             {1100, {}, &strided, 1200},
             {2304, Bytes(memory).subspan(1000, 1), nullptr, 1},
             {2400, Bytes(memory).subspan(2000, 100), nullptr, 100}};
    op.parts = parts;
    op.values = values;
    op.header = header;
    op.descriptor.payload_bytes = 2600;
    op.descriptor.values_bytes = 33;
    op.descriptor.header_bytes = 17;
    expected.assign(2600, std::byte{0});
    std::copy_n(memory.begin(), 1000, expected.begin() + 3);
    for (std::size_t i = 0; i < 600; ++i) {
      const auto value = static_cast<std::uint16_t>(i % 20 * 30 + i / 20);
      std::memcpy(expected.data() + 1100 + i * 2, &value, 2);
    }
    expected[2304] = memory[1000];
    std::copy_n(memory.begin() + 2000, 100, expected.begin() + 2400);
    expected.insert(expected.end(), values.begin(), values.end());
    expected.insert(expected.end(), header.begin(), header.end());
  }
};

TEST(CopyBody, CopiesTheWholeBody) {
  Fixture fixture;
  std::vector<std::byte> out(fixture.expected.size(), std::byte{0xaa});
  copy_body(fixture.op, 0, out);
  EXPECT_EQ(out, fixture.expected);
}

TEST(CopyBody, CopiesAnyPieceOfItAndNothingBeside) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Fixture fixture;
  const std::size_t total = fixture.expected.size();
  for (int round = 0; round < 20000; ++round) {
    const std::size_t offset = random() % (total + 1);
    const std::size_t size =
        std::min<std::size_t>(total - offset, random() % 3 == 0 ? random() % total : random() % 5);
    std::vector<std::byte> out(size + 2, std::byte{0xaa});
    copy_body(fixture.op, offset, MutableBytes(out).subspan(1, size));
    ASSERT_EQ(out.front(), std::byte{0xaa});
    ASSERT_EQ(out.back(), std::byte{0xaa});
    ASSERT_TRUE(std::equal(out.begin() + 1, out.end() - 1,
                           fixture.expected.begin() + static_cast<std::ptrdiff_t>(offset)))
        << "offset " << offset << ", size " << size;
  }
}

TEST(CopyBody, WithoutPartsThePayloadIsWhatLiesInTheSlot) {
  auto pool = std::make_shared<SlotPool>("test", 1 << 20);
  auto lease = std::make_shared<LoanedSlot>(pool, pool->acquire(5000).value());
  const auto payload = pattern(3000, 4);
  const auto values = pattern(10, 5);
  std::copy(payload.begin(), payload.end(), lease->slot().memory.begin());
  SendOp op;
  op.descriptor.payload_bytes = 3000;
  op.descriptor.values_bytes = 10;
  op.values = values;
  op.loaned = lease.get();
  // Copies to separate memory, and to the slot itself.
  std::vector<std::byte> out(3010);
  copy_body(op, 0, out);
  copy_body(op, 0, lease->slot().memory.first(3010));
  std::vector<std::byte> expected = payload;
  expected.insert(expected.end(), values.begin(), values.end());
  EXPECT_EQ(out, expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), lease->slot().memory.begin()));
}

TEST(ContiguousBody, IsWhatOnePartCovers) {
  const Fixture f;
  for (std::uint64_t offset = 0; offset < f.expected.size(); ++offset) {
    for (const std::uint64_t size : {1, 64, 997}) {
      if (offset + size > f.expected.size()) continue;
      const bool covered = std::ranges::any_of(f.parts, [&](const BodyPart& part) {
        return part.strided == nullptr && part.offset <= offset &&
               offset + size <= part.offset + part.size_bytes;
      });
      const Bytes bytes = contiguous_body(f.op, offset, size);
      ASSERT_EQ(bytes.size(), covered ? size : 0) << offset << " " << size;
      ASSERT_TRUE(
          std::ranges::equal(bytes, std::span(f.expected).subspan(offset, covered ? size : 0)));
    }
  }
}

TEST(PartsFrom, FindsTheFirstPartThatEndsBehindAByte) {
  Fixture fixture;
  EXPECT_EQ(parts_from(fixture.op, 0).size(), 5u);
  EXPECT_EQ(parts_from(fixture.op, 1002).size(), 5u);
  EXPECT_EQ(parts_from(fixture.op, 1003).size(), 3u);
  EXPECT_EQ(parts_from(fixture.op, 2499).size(), 1u);
  EXPECT_EQ(parts_from(fixture.op, 2500).size(), 0u);
}

TEST(PrivateBody, HasRoomForWhatWasAskedAndIsUsedAgain) {
  EXPECT_EQ(make_private_body(0).place, IncomingBody::Place::nowhere);
  for (const std::uint64_t size : {1u, 256u, 257u, 1024u, 1025u, 8192u}) {
    IncomingBody body = make_private_body(size);
    EXPECT_EQ(body.place, IncomingBody::Place::private_copy);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(body.data) % 64, 0u);
    std::memset(body.data, 0x55, size);  // a sanitizer detects one byte too few
    const std::byte* const first = body.data;
    body = {};
    EXPECT_EQ(make_private_body(size).data, first) << size;
  }
}

TEST(PrivateBody, TwoBodiesNeverShareMemory) {
  std::vector<IncomingBody> bodies;
  std::set<const std::byte*> places;
  for (int i = 0; i < 3000; ++i) {
    bodies.push_back(make_private_body(200));
    places.insert(bodies.back().data);
  }
  EXPECT_EQ(places.size(), bodies.size());
}

}  // namespace
}  // namespace tendon::detail
