// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <tendon/tensor/dlpack.hpp>
#include <type_traits>

#include "tensor/extent.hpp"

namespace tendon::v0 {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.dlpack", std::move(detail)};
}

// The objects behind an exported tensor: the struct that the consumer sees first, then those that
// it points to.
template <class Managed>
struct Export {
  Managed managed;
  Tensor tensor;
  std::array<std::int64_t, kMaxDimensions> shape;
  std::array<std::int64_t, kMaxDimensions> strides;
};

template <class Managed>
Managed* export_tensor(const Tensor& tensor) {
  auto* const held = new Export<Managed>{{}, tensor, {}, {}};
  std::copy(tensor.shape().begin(), tensor.shape().end(), held->shape.begin());
  std::copy(tensor.strides().begin(), tensor.strides().end(), held->strides.begin());
  const DLPackType type = to_dlpack_type(tensor.dtype());
  DLTensor& view = held->managed.dl_tensor;
  // The struct has no const: its flags say whether it may be written.
  view.data = const_cast<std::byte*>(tensor.data());
  view.device = {static_cast<std::int32_t>(tensor.device().kind), tensor.device().index};
  view.ndim = static_cast<std::int32_t>(tensor.shape().size());
  view.dtype = {type.code, type.bits, 1};
  view.shape = held->shape.data();
  view.strides = held->strides.data();
  view.byte_offset = 0;
  held->managed.manager_ctx = held;
  held->managed.deleter = [](Managed* self) {
    delete static_cast<Export<Managed>*>(self->manager_ctx);
  };
  return &held->managed;
}

/// There is one CPU, whatever its number.
Result<Device> device_of(const dlpack::DLDevice& given) {
  if (given.device_type == static_cast<std::int32_t>(DeviceKind::cpu)) return cpu();
  const auto kind = device_kind_from_dlpack(given.device_type);
  if (kind == DeviceKind::cuda) return Device{*kind, given.device_id};
  return error(ErrorCode::unsupported_device,
               "the tensor lies on " +
                   (kind ? to_string(Device{*kind, given.device_id})
                         : "device type " + std::to_string(given.device_type)) +
                   "; legal are cpu and cuda");
}

Result<Tensor> import_tensor(const DLTensor& view, const std::shared_ptr<const void>& owner,
                             Access access) {
  TENDON_TRY(device, device_of(view.device));
  const auto dtype = dtype_from_dlpack({view.dtype.code, view.dtype.bits});
  if (!dtype || view.dtype.lanes != 1) {
    return error(ErrorCode::unsupported_dtype,
                 "the element type has DLPack code " + std::to_string(view.dtype.code) + ", " +
                     std::to_string(view.dtype.bits) + " bits and " +
                     std::to_string(view.dtype.lanes) +
                     " lanes; legal are the types of whole bytes with one lane");
  }
  if (view.ndim < 0 || (view.ndim > 0 && view.shape == nullptr)) {
    return error(ErrorCode::invalid_argument,
                 "a tensor of " + std::to_string(view.ndim) + " dimensions without a shape");
  }
  const auto count = static_cast<std::size_t>(view.ndim);
  TENDON_TRY(shape, Shape::make({view.shape, count}));
  TENDON_CHECK(shape.size_bytes(*dtype));
  TENDON_TRY(element_count, shape.element_count());
  Strides strides = Strides::row_major(shape);
  if (view.strides != nullptr) {
    TENDON_TRY(given, Strides::make({view.strides, count}));
    strides = given;
  }
  if (element_count == 0)
    return Tensor::view(Storage(owner, nullptr, 0, access, Origin::here, device), 0, *dtype, shape,
                        strides);

  const auto extent = detail::byte_extent(*dtype, shape, strides);
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
  if (view.data == nullptr || !extent ||
      __builtin_add_overflow(reinterpret_cast<std::uintptr_t>(view.data), view.byte_offset,
                             &first) ||
      -static_cast<std::uintptr_t>(extent->begin) > first ||
      __builtin_add_overflow(first, static_cast<std::uintptr_t>(extent->end), &end)) {
    return error(ErrorCode::invalid_argument, "shape " + to_string(shape) + " with strides " +
                                                  to_string(strides) + " and byte offset " +
                                                  std::to_string(view.byte_offset) +
                                                  " does not fit in memory");
  }
  std::byte* const base = static_cast<std::byte*>(view.data) + view.byte_offset + extent->begin;
  const auto before = -static_cast<std::uint64_t>(extent->begin);
  return Tensor::view(Storage(owner, base, before + static_cast<std::uint64_t>(extent->end), access,
                              Origin::here, device),
                      before, *dtype, shape, strides);
}

template <class Managed>
std::shared_ptr<const void> take_over(Managed* managed) {
  return std::shared_ptr<const void>(managed, [](Managed* taken) {
    // A producer that cannot free its tensor may leave this out.
    if (taken->deleter != nullptr) taken->deleter(taken);
  });
}

Error no_tensor() { return error(ErrorCode::invalid_argument, "a null pointer is no tensor"); }

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  auto* const managed = export_tensor<DLManagedTensorVersioned>(tensor);
  managed->version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  managed->flags = tensor.access() == Access::read_only ? dlpack::kFlagReadOnly : 0;
  return managed;
}

Result<DLManagedTensor*> to_dlpack_unversioned(const Tensor& tensor) {
  if (tensor.access() == Access::read_only) {
    return error(ErrorCode::read_only,
                 "a DLPack tensor without a version cannot say that it may only be read");
  }
  return export_tensor<DLManagedTensor>(tensor);
}

Result<Tensor> from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed == nullptr) return no_tensor();
  const auto owner = take_over(managed);
  // Another major version has another struct: only version, manager_ctx and deleter may be touched.
  if (managed->version.major != dlpack::kMajorVersion) {
    return error(ErrorCode::version_mismatch,
                 "the tensor has DLPack version " + std::to_string(managed->version.major) + "." +
                     std::to_string(managed->version.minor) + "; legal is 1.x");
  }
  return import_tensor(
      managed->dl_tensor, owner,
      (managed->flags & dlpack::kFlagReadOnly) != 0 ? Access::read_only : Access::read_write);
}

Result<Tensor> from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) return no_tensor();
  return import_tensor(managed->dl_tensor, take_over(managed), Access::read_write);
}

}  // namespace tendon::v0
