// SPDX-License-Identifier: Apache-2.0
#include "tensor/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tendon/tensor/packed.hpp>
#include <vector>

#include "support/expect.hpp"
#include "support/storage_on_gpu.hpp"
#include "tensor/destination_check.hpp"
#include "tensor/packed_copy.hpp"

namespace tendon {
namespace {

using test::fails_with;

// A tensor of random shape whose strides are those of a larger one that was cut, transposed and
// mirrored; no two elements share memory.
Tensor random_view(std::mt19937_64& random, DType dtype) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto count = static_cast<std::size_t>(pick(0, 5));
  std::vector<std::int64_t> sizes(count);
  std::vector<std::int64_t> outer(count);
  for (std::size_t i = 0; i < count; ++i) {
    sizes[i] = pick(1, 5);
    outer[i] = sizes[i] + (pick(0, 2) == 0 ? pick(0, 2) : 0);
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::int64_t> steps(count);
  std::int64_t step = 1;
  for (const std::size_t dimension : order) {
    steps[dimension] = step;
    step *= outer[dimension];
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (pick(0, 3) == 0) {
      offset += (sizes[i] - 1) * steps[i];
      steps[i] = -steps[i];
    }
  }
  const std::uint64_t item_bytes = item_size_bytes(dtype);
  const Storage storage = Storage::allocate(static_cast<std::uint64_t>(step) * item_bytes).value();
  for (std::uint64_t i = 0; i < storage.size_bytes(); ++i)
    storage.data()[i] = static_cast<std::byte>(random());
  return Tensor::view(storage, static_cast<std::uint64_t>(offset) * item_bytes, dtype,
                      Shape::make(sizes).value(), Strides::make(steps).value())
      .value();
}

// The row-major bytes of a tensor, one element at a time.
std::vector<std::byte> reference(const Tensor& tensor) {
  std::vector<std::byte> bytes;
  const auto item_bytes = static_cast<std::int64_t>(item_size_bytes(tensor.dtype()));
  std::vector<std::int64_t> index(tensor.shape().size());
  for (std::int64_t n = 0; n < tensor.element_count(); ++n) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * tensor.strides()[i];
    const std::byte* at = tensor.data() + offset * item_bytes;
    bytes.insert(bytes.end(), at, at + item_bytes);
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < tensor.shape()[i]) break;
      index[i] = 0;
    }
  }
  return bytes;
}

class RandomCopy : public testing::TestWithParam<DType> {};

TEST_P(RandomCopy, GatherAndScatterMatchElementByElement) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const Tensor source = random_view(random, GetParam());
    const std::vector<std::byte> expected = reference(source);
    std::vector<std::byte> whole(expected.size());
    detail::gather(source, whole);
    ASSERT_EQ(whole, expected);

    // Any range of bytes.
    const std::uint64_t begin = random() % (expected.size() + 1);
    const std::uint64_t count = random() % (expected.size() - begin + 1);
    std::vector<std::byte> piece(count);
    detail::gather_piece(source, begin, piece);
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(),
                           expected.begin() + static_cast<std::ptrdiff_t>(begin)))
        << begin << " + " << count << " of " << source.shape() << source.strides();

    Tensor destination = random_view(random, GetParam());
    while (destination.element_count() != source.element_count())
      destination = random_view(random, GetParam());
    if (destination.shape() == source.shape()) {
      detail::copy_strided(destination, source);
      ASSERT_EQ(reference(destination), expected);
    }
    std::uint64_t done = 0;
    while (done < expected.size()) {
      const std::uint64_t next = std::min<std::uint64_t>(1 + random() % 40, expected.size() - done);
      detail::scatter_piece({expected.data() + done, next}, destination, done);
      done += next;
    }
    ASSERT_EQ(reference(destination), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RandomCopy,
                         testing::Values(DType::u8, DType::f16, DType::f32, DType::f64,
                                         DType::c128),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(Copy, ScatterTouchesNothingBetweenTheElements) {
  const Storage storage = Storage::allocate(6 * 4).value();
  std::fill_n(storage.data(), storage.size_bytes(), std::byte{0xEE});
  const Tensor column = Tensor::view(storage, 4, DType::f32, {3}, {2}).value();
  const std::vector<std::byte> ones(12, std::byte{1});
  detail::scatter(ones, column);
  for (std::size_t i = 0; i < 24; ++i)
    EXPECT_EQ(storage.data()[i], i / 4 % 2 == 1 ? std::byte{1} : std::byte{0xEE}) << i;
}

TEST(Copy, ZeroStrideRepeats) {
  const Storage storage = Storage::allocate(8).value();
  for (int i = 0; i < 8; ++i) storage.data()[i] = static_cast<std::byte>(i);
  const Tensor rows = Tensor::view(storage, 0, DType::u8, {3, 4}, {0, 2}).value();
  std::vector<std::byte> bytes(12);
  detail::gather(rows, bytes);
  EXPECT_EQ(bytes, reference(rows));
  EXPECT_EQ(bytes[5], std::byte{2});
}

TEST(Copy, StridedToStridedLargerThanItsBuffer) {
  const Storage storage = Storage::allocate(2 * 300 * 301).value();
  for (std::uint64_t i = 0; i < storage.size_bytes(); ++i)
    storage.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
  const Tensor source = Tensor::view(storage, 0, DType::u16, {300, 300}, {1, 301}).value();
  const Tensor target = Tensor::empty(DType::u16, {300, 301}).value().slice(1, 0, 300).value();
  detail::copy_strided(target, source);
  EXPECT_TRUE(bitwise_equal(target, source));
}

TensorDict three_leaves() {
  TensorDict dict;
  dict.set("a", Tensor::of<std::uint8_t>({3}, {1, 2, 3}));
  dict.set("b", Tensor::of<std::int32_t>({2, 2}, {10, 20, 30, 40}).transpose(0, 1).value());
  dict.set("none", Tensor::empty(DType::f64, {0}).value());
  dict.set("c", Tensor::of<double>({2}, {0.5, -0.5}));
  return dict;
}

class Packing : public testing::TestWithParam<Layout> {};

TEST_P(Packing, AnyPieceIsThatPartOfTheWhole) {
  const TensorDict dict = three_leaves();
  const PackedLayout& layout = dict.schema()->layout(GetParam());
  const Storage storage = Storage::allocate(layout.total_bytes).value();
  std::fill_n(storage.data(), storage.size_bytes(), std::byte{0xEE});
  detail::pack_piece(dict, GetParam(), 0, {storage.data(), storage.size_bytes()});
  const TensorDict packed = make_packed(dict.schema(), GetParam(), storage).value();
  EXPECT_TRUE(bitwise_equal(packed, dict));
  for (std::uint64_t begin = 0; begin <= layout.total_bytes; ++begin) {
    for (std::uint64_t end = begin; end <= layout.total_bytes; ++end) {
      std::vector<std::byte> piece(end - begin, std::byte{0xEE});
      detail::pack_piece(dict, GetParam(), begin, piece);
      ASSERT_TRUE(std::equal(piece.begin(), piece.end(), storage.data() + begin))
          << begin << " to " << end;
    }
  }
}

TEST_P(Packing, UnpackFillsEveryLeafInPieces) {
  const TensorDict dict = three_leaves();
  const PackedLayout& layout = dict.schema()->layout(GetParam());
  std::vector<std::byte> bytes(layout.total_bytes);
  detail::pack_piece(dict, GetParam(), 0, bytes);
  for (const std::uint64_t step : {1u, 3u, 7u, 64u, 1000u}) {
    TensorDict target;
    target.set("a", Tensor::zeros(DType::u8, {3}).value());
    target.set("b", Tensor::zeros(DType::i32, {2, 2}).value().transpose(0, 1).value());
    target.set("none", Tensor::empty(DType::f64, {0}).value());
    target.set("c", Tensor::zeros(DType::f64, {2}).value());
    for (std::uint64_t at = 0; at < bytes.size(); at += step) {
      const std::uint64_t count = std::min<std::uint64_t>(step, bytes.size() - at);
      detail::unpack_piece({bytes.data() + at, count}, target, GetParam(), at);
    }
    EXPECT_TRUE(bitwise_equal(target, dict)) << step;
  }
}

TEST(PackingGaps, AreZeroWhateverWasThere) {
  const TensorDict dict = three_leaves();
  std::vector<std::byte> bytes(dict.schema()->layout(Layout::aligned).total_bytes, std::byte{0xEE});
  detail::pack_piece(dict, Layout::aligned, 0, bytes);
  for (std::size_t i = 3; i < 64; ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Packing, testing::Values(Layout::aligned, Layout::safetensors),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(Destination, RefusesWhatCannotBeWritten) {
  EXPECT_TRUE(test::succeeds(detail::check_destination(three_leaves())));
  EXPECT_TRUE(test::succeeds(detail::check_destination(TensorDict())));

  const Storage storage = Storage::allocate(64).value();
  TensorDict dict;
  dict.set("x", Tensor::view(Storage(storage.owner(), storage.data(), 64, Access::read_only), 0,
                             DType::u8, {4})
                    .value());
  EXPECT_TRUE(fails_with(detail::check_destination(dict), ErrorCode::read_only, "'x'"));
  dict.set("x", Tensor::view(test::storage_on_gpu(4), 0, DType::u8, {4}).value());
  EXPECT_TRUE(fails_with(detail::check_destination(dict), ErrorCode::unsupported_device, "cuda:0"));
  dict.set("x", Tensor::view(storage, 0, DType::u8, {4}, {0}).value());
  EXPECT_TRUE(fails_with(detail::check_destination(dict), ErrorCode::overlapping, "'x'"));
  dict.set("x", Tensor::view(storage, 0, DType::u8, {4}, {1}).value());
  EXPECT_TRUE(test::succeeds(detail::check_destination(dict))) << "asked anew after a change";
  dict.set("y", Tensor::view(storage, 3, DType::u8, {4}).value());
  EXPECT_TRUE(fails_with(detail::check_destination(dict), ErrorCode::overlapping, "'y'"));
  dict.set("y", Tensor::view(storage, 4, DType::u8, {4}).value());
  EXPECT_TRUE(test::succeeds(detail::check_destination(dict)));
}

TEST(Destination, StridesThatInterleaveAreNoOverlap) {
  const Storage storage = Storage::allocate(60).value();
  TensorDict dict;
  dict.set("even", Tensor::view(storage, 0, DType::i32, {5}, {2}).value());
  dict.set("odd", Tensor::view(storage, 4, DType::i32, {5}, {2}).value());
  EXPECT_TRUE(test::succeeds(detail::check_destination(dict)));
  dict.set("odd", Tensor::view(storage, 3, DType::i32, {5}, {2}).value());
  EXPECT_TRUE(fails_with(detail::check_destination(dict), ErrorCode::overlapping));
  // Steps 2 and 3 of two dimensions reach 0, 2, 3 and 5. No two are equal, although 3 lies within
  // the reach of 2.
  TensorDict tangled;
  tangled.set("x", Tensor::view(storage, 0, DType::i32, {2, 2}, {2, 3}).value());
  EXPECT_TRUE(test::succeeds(detail::check_destination(tangled)));
  tangled.set("x", Tensor::view(storage, 0, DType::i32, {3, 3}, {1, 2}).value());
  EXPECT_TRUE(fails_with(detail::check_destination(tangled), ErrorCode::overlapping));
}

}  // namespace
}  // namespace tendon
