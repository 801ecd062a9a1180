// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <tendon/tensor/dlpack.hpp>
#include <vector>

#include "support/expect.hpp"

namespace tendon {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;
using test::fails_with;
using test::succeeds;

// The published layout on 64-bit machines: other libraries read these structs.
static_assert(sizeof(dlpack::DLDevice) == 8 && sizeof(dlpack::DLDataType) == 4);
static_assert(offsetof(DLTensor, data) == 0 && offsetof(DLTensor, device) == 8);
static_assert(offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20);
static_assert(offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32);
static_assert(offsetof(DLTensor, byte_offset) == 40 && sizeof(DLTensor) == 48);
static_assert(offsetof(DLManagedTensor, manager_ctx) == 48);
static_assert(offsetof(DLManagedTensor, deleter) == 56 && sizeof(DLManagedTensor) == 64);
static_assert(offsetof(DLManagedTensorVersioned, version) == 0);
static_assert(offsetof(DLManagedTensorVersioned, manager_ctx) == 8);
static_assert(offsetof(DLManagedTensorVersioned, deleter) == 16);
static_assert(offsetof(DLManagedTensorVersioned, flags) == 24);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
static_assert(sizeof(DLManagedTensorVersioned) == 80);

// A tensor that another framework passes; counts how often it is deleted.
template <class Managed>
struct Foreign {
  Foreign() {
    managed.dl_tensor = {elements, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};
    managed.manager_ctx = &deleted;
    managed.deleter = [](Managed* self) { ++*static_cast<int*>(self->manager_ctx); };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
      managed.version = {1, 0};
      managed.flags = 0;
    }
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  float elements[6] = {0, 1, 2, 3, 4, 5};
  std::int64_t shape[kMaxDimensions + 1] = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  std::int64_t strides[kMaxDimensions + 1] = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  int deleted = 0;
  Managed managed{};
};

template <class Managed>
class Import : public testing::Test {};
using BothStructs = testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(Import, BothStructs);

TYPED_TEST(Import, TakesTheTensorOverWithoutACopy) {
  Foreign<TypeParam> foreign;
  {
    const Tensor tensor = from_dlpack(&foreign.managed).value();
    const Tensor second = tensor;
    EXPECT_EQ(tensor.dtype(), DType::f32);
    EXPECT_EQ(tensor.shape(), Shape({2, 3}));
    EXPECT_EQ(tensor.data(), reinterpret_cast<const std::byte*>(foreign.elements));
    EXPECT_EQ(tensor.item<float>({1, 2}), 5);
    EXPECT_EQ(tensor.access(), Access::read_write);
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TYPED_TEST(Import, StridesAndOffsets) {
  Foreign<TypeParam> foreign;
  foreign.strides[0] = 1;
  foreign.strides[1] = -2;
  foreign.managed.dl_tensor.byte_offset = 4 * sizeof(float);
  const Tensor tensor = from_dlpack(&foreign.managed).value();
  EXPECT_EQ(tensor.item<float>({0, 0}), 4);
  EXPECT_EQ(tensor.item<float>({1, 2}), 1);
  EXPECT_EQ(tensor.storage().size_bytes(), 6 * sizeof(float));
}

TYPED_TEST(Import, NoStridesMeansRowMajor) {
  Foreign<TypeParam> foreign;
  foreign.managed.dl_tensor.strides = nullptr;
  const Tensor tensor = from_dlpack(&foreign.managed).value();
  EXPECT_EQ(tensor.item<float>({1, 1}), 4);
}

TYPED_TEST(Import, TensorsWithoutElementsMayHaveNoMemory) {
  Foreign<TypeParam> foreign;
  foreign.shape[0] = 0;
  foreign.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).value().shape(), Shape({0, 3}));
  EXPECT_EQ(foreign.deleted, 1);
}

TYPED_TEST(Import, NoDeleterIsLegal) {
  Foreign<TypeParam> foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_TRUE(succeeds(from_dlpack(&foreign.managed)));
}

TYPED_TEST(Import, MemoryOfAGpuStaysThere) {
  Foreign<TypeParam> foreign;
  foreign.managed.dl_tensor.device = {2, 1};
  const Tensor tensor = from_dlpack(&foreign.managed).value();
  EXPECT_EQ(tensor.device(), (Device{DeviceKind::cuda, 1}));
  EXPECT_EQ(tensor.storage().device(), tensor.device());
  EXPECT_TRUE(fails_with(tensor.try_bytes(), ErrorCode::unsupported_device, "cuda:1"));
}

TYPED_TEST(Import, RefusalsDeleteTheTensorOnce) {
  const auto refused = [](auto change, ErrorCode code, std::string_view what) {
    Foreign<TypeParam> foreign;
    change(foreign.managed.dl_tensor);
    EXPECT_TRUE(fails_with(from_dlpack(&foreign.managed), code, what));
    EXPECT_EQ(foreign.deleted, 1) << what;
  };
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  refused([](DLTensor& t) { t.device = {3, 1}; }, ErrorCode::unsupported_device, "cuda_host:1");
  refused([](DLTensor& t) { t.device = {99, 0}; }, ErrorCode::unsupported_device, "99");
  refused([](DLTensor& t) { t.dtype.lanes = 4; }, ErrorCode::unsupported_dtype, "4 lanes");
  refused([](DLTensor& t) { t.dtype = {17, 4, 1}; }, ErrorCode::unsupported_dtype, "4 bits");
  refused([](DLTensor& t) { t.dtype = {3, 64, 1}; }, ErrorCode::unsupported_dtype, "code 3");
  refused([](DLTensor& t) { t.ndim = -1; }, ErrorCode::invalid_argument, "-1");
  refused([](DLTensor& t) { t.ndim = 17; }, ErrorCode::limit_exceeded, "17");
  refused([](DLTensor& t) { t.shape = nullptr; }, ErrorCode::invalid_argument, "shape");
  refused([](DLTensor& t) { t.shape[0] = -1; }, ErrorCode::invalid_argument, "negative");
  refused([](DLTensor& t) { t.shape[0] = kMax; }, ErrorCode::limit_exceeded, "2^63");
  refused([](DLTensor& t) { t.strides[0] = kMax; }, ErrorCode::invalid_argument, "memory");
  refused([](DLTensor& t) { t.strides[0] = -kMax / 4; }, ErrorCode::invalid_argument, "memory");
  refused([](DLTensor& t) { t.data = nullptr; }, ErrorCode::invalid_argument, "memory");
  refused([](DLTensor& t) { t.byte_offset = ~0ull; }, ErrorCode::invalid_argument, "memory");
}

TEST(Import, FlagsAndVersions) {
  Foreign<DLManagedTensorVersioned> fixed;
  fixed.managed.flags = dlpack::kFlagReadOnly;
  EXPECT_EQ(from_dlpack(&fixed.managed).value().access(), Access::read_only);

  Foreign<DLManagedTensorVersioned> newer;
  newer.managed.version = {1, 99};
  EXPECT_TRUE(succeeds(from_dlpack(&newer.managed)));

  Foreign<DLManagedTensorVersioned> other;
  other.managed.version = {2, 0};
  other.managed.dl_tensor.shape = reinterpret_cast<std::int64_t*>(8);  // must not be touched
  EXPECT_TRUE(fails_with(from_dlpack(&other.managed), ErrorCode::version_mismatch, "2.0"));
  EXPECT_EQ(other.deleted, 1);

  EXPECT_TRUE(
      fails_with(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), ErrorCode::invalid_argument));
}

TEST(Export, EveryTypeGoesOutAndComesBack) {
  for (const DTypeInfo& row : dtype_table()) {
    const Tensor tensor = Tensor::zeros(row.dtype, {2, 3}).value();
    DLManagedTensorVersioned* const managed = to_dlpack(tensor);
    EXPECT_EQ(managed->version.major, 1u);
    EXPECT_EQ(managed->dl_tensor.dtype.code, row.dlpack.code);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, row.dlpack.bits);
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
    EXPECT_EQ(managed->dl_tensor.device.device_type, 1);
    const Tensor back = from_dlpack(managed).value();
    EXPECT_EQ(back.data(), tensor.data());
    EXPECT_EQ(back.dtype(), row.dtype);
    EXPECT_EQ(back.shape(), tensor.shape());
  }
}

TEST(Export, HoldsAShareUntilDeleted) {
  const auto owner = std::make_shared<std::vector<float>>(4);
  Tensor tensor = Tensor::view(Storage(owner, reinterpret_cast<std::byte*>(owner->data()), 16,
                                       Access::read_only),
                               4, DType::f32, {2}, {2})
                      .value();
  DLManagedTensorVersioned* const managed = to_dlpack(tensor);
  tensor = Tensor();
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(managed->flags, dlpack::kFlagReadOnly);
  EXPECT_EQ(managed->dl_tensor.ndim, 1);
  EXPECT_EQ(managed->dl_tensor.shape[0], 2);
  EXPECT_EQ(managed->dl_tensor.strides[0], 2);
  EXPECT_EQ(managed->dl_tensor.data, owner->data() + 1);
  managed->deleter(managed);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Export, TheUnversionedStructCannotSayReadOnly) {
  const Storage storage = Storage::allocate(4).value();
  const Tensor fixed = Tensor::view(Storage(storage.owner(), storage.data(), 4, Access::read_only),
                                    0, DType::u8, {4})
                           .value();
  EXPECT_TRUE(fails_with(to_dlpack_unversioned(fixed), ErrorCode::read_only));
  const Tensor open = Tensor::view(storage, 0, DType::u8, {4}).value();
  DLManagedTensor* const managed = to_dlpack_unversioned(open).value();
  EXPECT_EQ(managed->dl_tensor.data, storage.data());
  managed->deleter(managed);
}

}  // namespace
}  // namespace tendon
