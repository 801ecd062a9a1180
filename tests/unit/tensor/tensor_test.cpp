// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "support/expect.hpp"
#include "support/storage_on_gpu.hpp"

namespace tendon {
namespace {

using test::fails_with;

std::string text_of(const Tensor& tensor) {
  std::ostringstream out;
  out << tensor;
  return out.str();
}

// Elements 0, 1, 2, ... of `shape`.
Tensor counting(const Shape& shape) {
  Tensor tensor = Tensor::empty(DType::i32, shape).value();
  std::int32_t next = 0;
  for (std::int32_t& element : tensor.span<std::int32_t>()) element = next++;
  return tensor;
}

std::vector<std::int32_t> elements(const Tensor& tensor) {
  const Tensor whole = tensor.contiguous().value();
  const auto span = whole.span<const std::int32_t>();
  return {span.begin(), span.end()};
}

TEST(Tensor, HoldsValuesInRowMajorOrder) {
  const Tensor tensor = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(tensor.dtype(), DType::f32);
  EXPECT_EQ(tensor.shape(), Shape({2, 2}));
  EXPECT_EQ(tensor.strides(), Strides({2, 1}));
  EXPECT_EQ(tensor.device(), cpu());
  EXPECT_EQ(tensor.size_bytes(), 16u);
  EXPECT_EQ(tensor.item<float>({1, 0}), 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
  EXPECT_EQ(Tensor::of<double>({}, {2.5}).item<double>(), 2.5);
}

TEST(Tensor, WrongNumberOfValuesIsTold) {
  const std::vector<float> values{1, 2, 3};
  EXPECT_TRUE(fails_with(Tensor::make<float>({2, 2}, values), ErrorCode::invalid_argument, "16"));
  EXPECT_THROW(static_cast<void>(Tensor::of<float>({2}, {1})), Exception);
}

TEST(Tensor, CopiesShareTheElements) {
  const Tensor a = counting({3});
  const Tensor b = a;
  b.set_item<std::int32_t>({1}, 50);
  EXPECT_EQ(a.item<std::int32_t>({1}), 50);
}

TEST(Tensor, SpanRefusesWhatItCannotShow) {
  const Tensor tensor = counting({2, 3});
  EXPECT_TRUE(fails_with(tensor.try_span<float>(), ErrorCode::unsupported_dtype, "i32"));
  EXPECT_TRUE(fails_with(tensor.transpose(0, 1).value().try_span<std::int32_t>(),
                         ErrorCode::not_contiguous));
  const Storage storage = Storage::allocate(64).value();
  const Storage locked(storage.owner(), storage.data(), 64, Access::read_only);
  const Tensor fixed = Tensor::view(locked, 0, DType::i32, {4}).value();
  EXPECT_TRUE(fails_with(fixed.try_span<std::int32_t>(), ErrorCode::read_only));
  EXPECT_TRUE(test::succeeds(fixed.try_span<const std::int32_t>()));
  EXPECT_TRUE(fails_with(fixed.try_mutable_bytes(), ErrorCode::read_only));
  EXPECT_THROW(fixed.set_item<std::int32_t>({0}, 1), Exception);
  const Tensor odd = Tensor::view(storage, 1, DType::i32, {4}).value();
  EXPECT_TRUE(fails_with(odd.try_span<std::int32_t>(), ErrorCode::invalid_argument, "multiple"));
  EXPECT_TRUE(test::succeeds(odd.try_bytes()));
  EXPECT_TRUE(test::succeeds(odd.contiguous().value().try_span<std::int32_t>()));
  const Tensor far = Tensor::view(test::storage_on_gpu(16), 0, DType::i32, {4}).value();
  EXPECT_TRUE(fails_with(far.try_span<std::int32_t>(), ErrorCode::unsupported_device, "cuda:0"));
}

TEST(Tensor, ItemChecksItsIndex) {
  const Tensor tensor = counting({2, 3});
  EXPECT_EQ(tensor.transpose(0, 1).value().item<std::int32_t>({2, 1}), 5);
  EXPECT_THROW(static_cast<void>(tensor.item<std::int32_t>({2, 0})), Exception);
  EXPECT_THROW(static_cast<void>(tensor.item<std::int32_t>({0, -1})), Exception);
  EXPECT_THROW(static_cast<void>(tensor.item<std::int32_t>({0})), Exception);
  EXPECT_THROW(static_cast<void>(tensor.item<float>({0, 0})), Exception);
}

TEST(Tensor, ViewStaysInsideItsStorage) {
  const Storage storage = Storage::allocate(100).value();
  EXPECT_TRUE(test::succeeds(Tensor::view(storage, 0, DType::u8, {100})));
  EXPECT_TRUE(fails_with(Tensor::view(storage, 1, DType::u8, {100}), ErrorCode::invalid_argument,
                         "100 bytes"));
  EXPECT_TRUE(fails_with(Tensor::view(storage, 0, DType::f32, {26}), ErrorCode::invalid_argument));
  EXPECT_TRUE(test::succeeds(Tensor::view(storage, 100, DType::f32, {0})));
  EXPECT_TRUE(fails_with(Tensor::view(storage, 101, DType::f32, {0}), ErrorCode::invalid_argument));
  // Ten elements, the first of which lies last.
  EXPECT_TRUE(test::succeeds(Tensor::view(storage, 36, DType::f32, {10}, {-1})));
  EXPECT_TRUE(
      fails_with(Tensor::view(storage, 35, DType::f32, {10}, {-1}), ErrorCode::invalid_argument));
  EXPECT_TRUE(test::succeeds(Tensor::view(storage, 96, DType::f32, {1'000'000}, {0})));
  EXPECT_TRUE(fails_with(Tensor::view(storage, 97, DType::f32, {1'000'000}, {0}),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(Tensor::view(storage, 0, DType::f32, {2, 2}, {1}),
                         ErrorCode::invalid_argument, "strides"));
}

TEST(Tensor, ViewRefusesStridesThatOverflow) {
  const Storage storage = Storage::allocate(100).value();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t stride : {kMost, kMin, kMost / 2, kMin / 2, kMost / 4 + 1})
    for (const std::int64_t size : {2, 3, 5}) {
      EXPECT_TRUE(fails_with(Tensor::view(storage, 50, DType::f32, {size, size}, {stride, stride}),
                             ErrorCode::invalid_argument));
      EXPECT_TRUE(fails_with(Tensor::view(storage, 50, DType::f32, {size, size}, {stride, -1}),
                             ErrorCode::invalid_argument));
    }
}

TEST(Tensor, ContiguousIsAQuestionOfStrides) {
  const Tensor tensor = counting({2, 1, 3});
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_TRUE(tensor.transpose(0, 1).value().is_contiguous()) << "a dimension of one has no stride";
  EXPECT_FALSE(tensor.transpose(0, 2).value().is_contiguous());
  EXPECT_TRUE(Tensor::empty(DType::f32, {0, 5}).value().transpose(0, 1).value().is_contiguous());
  EXPECT_TRUE(Tensor::of<float>({}, {1}).is_contiguous());
  EXPECT_EQ(tensor.contiguous().value().data(), tensor.data()) << "no copy without need";
}

TEST(Tensor, ViewsShowTheSameElements) {
  const Tensor tensor = counting({3, 4});
  EXPECT_EQ(elements(tensor.slice(0, 1, 3).value()),
            (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(elements(tensor.slice(1, 1, 2).value()), (std::vector<std::int32_t>{1, 5, 9}));
  EXPECT_EQ(elements(tensor.select(0, 2).value()), (std::vector<std::int32_t>{8, 9, 10, 11}));
  EXPECT_EQ(elements(tensor.select(1, 3).value()), (std::vector<std::int32_t>{3, 7, 11}));
  EXPECT_EQ(elements(tensor.transpose(0, 1).value()),
            (std::vector<std::int32_t>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(tensor.reshape({2, 6}).value().item<std::int32_t>({1, 0}), 6);
  EXPECT_EQ(tensor.slice(0, 3, 3).value().element_count(), 0);
  EXPECT_EQ(tensor.select(0, 1).value().data(), tensor.data() + 16);
}

TEST(Tensor, ViewsCheckTheirArguments) {
  const Tensor tensor = counting({3, 4});
  EXPECT_TRUE(fails_with(tensor.slice(2, 0, 1), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.slice(0, 2, 1), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.slice(0, 0, 4), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.slice(0, -1, 1), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.select(0, 3), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.select(0, std::numeric_limits<std::int64_t>::max()),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.select(7, 0), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.transpose(0, 2), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.reshape({5}), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(tensor.transpose(0, 1).value().reshape({12}), ErrorCode::not_contiguous));
}

TEST(Tensor, EmptyAndDefaultTensorsHaveNoElements) {
  const Tensor none;
  EXPECT_EQ(none.element_count(), 0);
  EXPECT_TRUE(none.bytes().empty());
  EXPECT_TRUE(bitwise_equal(none, Tensor::empty(DType::u8, {0}).value()));
  const Tensor zero = Tensor::empty(DType::f32, {3, 0}).value();
  EXPECT_TRUE(zero.span<float>().empty());
  EXPECT_EQ(zero.select(0, 2).value().shape(), Shape({0}));
}

TEST(Tensor, MoreThan2To31Elements) {
  // One byte, shown three thousand million times: the size is a product, not memory in use.
  const Storage storage = Storage::allocate(1).value();
  storage.data()[0] = std::byte{7};
  const Tensor tensor = Tensor::view(storage, 0, DType::u8, {3'000'000'000}, {0}).value();
  EXPECT_EQ(tensor.size_bytes(), 3'000'000'000u);
  EXPECT_EQ(tensor.item<std::uint8_t>({2'999'999'999}), 7);
}

TEST(Tensor, BitwiseEqualLooksAtBits) {
  const Tensor a = counting({3, 4});
  EXPECT_TRUE(bitwise_equal(a, counting({3, 4})));
  EXPECT_FALSE(bitwise_equal(a, a.reshape({4, 3}).value()));
  const Tensor turned = a.transpose(0, 1).value().contiguous().value().transpose(0, 1).value();
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_TRUE(bitwise_equal(a, turned));
  turned.set_item<std::int32_t>({2, 3}, 0);
  EXPECT_FALSE(bitwise_equal(a, turned));
  EXPECT_FALSE(bitwise_equal(Tensor::of<float>({1}, {0.0f}), Tensor::of<float>({1}, {-0.0f})));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(bitwise_equal(Tensor::of<float>({1}, {nan}), Tensor::of<float>({1}, {nan})));
  EXPECT_FALSE(bitwise_equal(Tensor::of<std::int32_t>({1}, {0}), Tensor::of<float>({1}, {0})));
  // Larger than the piece that is compared at a time.
  Tensor large = counting({64, 64});
  const Tensor other = large.transpose(0, 1).value().contiguous().value().transpose(0, 1).value();
  EXPECT_TRUE(bitwise_equal(large, other));
  other.set_item<std::int32_t>({63, 63}, -1);
  EXPECT_FALSE(bitwise_equal(large, other));
}

TEST(Tensor, PrintsSmallOnesWithValues) {
  EXPECT_EQ(text_of(Tensor::of<float>({2, 2}, {1, 2.5, -3, 0.1f})), "f32 [2, 2] {1, 2.5, -3, 0.1}");
  EXPECT_EQ(text_of(Tensor::of<bool>({2}, {true, false})), "bool [2] {true, false}");
  EXPECT_EQ(text_of(Tensor::of<std::int8_t>({}, {-3})), "i8 [] {-3}");
  EXPECT_EQ(text_of(counting({3, 3})), "i32 [3, 3]");
  EXPECT_EQ(text_of(Tensor::of<std::complex<float>>({1}, {{1, -2}})), "c64 [1] {1-2i}");
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7C00, 0x7BFF};
  const Tensor half = Tensor::from_bytes(DType::f16, {5}, std::as_bytes(std::span(halves))).value();
  EXPECT_EQ(text_of(half), "f16 [5] {1, -2, 5.9604645e-08, inf, 65504}");
  const std::uint16_t brain[] = {0x3F80, 0xC000};
  EXPECT_EQ(text_of(Tensor::from_bytes(DType::bf16, {2}, std::as_bytes(std::span(brain))).value()),
            "bf16 [2] {1, -2}");
  const std::byte eighth[] = {std::byte{0xAB}};
  EXPECT_EQ(text_of(Tensor::from_bytes(DType::f8_e4m3fn, {1}, eighth).value()),
            "f8_e4m3fn [1] {0xab}");
}

TEST(Tensor, EveryTypePrintsAndCompares) {
  for (const DTypeInfo& row : dtype_table()) {
    const Tensor tensor = Tensor::zeros(row.dtype, {2}).value();
    EXPECT_EQ(tensor.size_bytes(), 2u * row.item_size_bytes);
    EXPECT_NE(text_of(tensor).find(row.name), std::string::npos);
    EXPECT_TRUE(bitwise_equal(tensor, Tensor::zeros(row.dtype, {2}).value()));
  }
}

}  // namespace
}  // namespace tendon
