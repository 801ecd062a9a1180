// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <initializer_list>
#include <ostream>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/shape.hpp>
#include <type_traits>

namespace tendon {
inline namespace v0 {

/// A typed, strided view on memory that it helps to keep alive. It is no maths library: Tendon
/// moves tensors.
///
/// Example:
///   Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
///   for (float& element : x.span<float>()) element *= 2;
///   const Tensor column = x.select(1, 0).value();  // a view of x
///   std::cout << column.item<float>({1}) << '\n';   // 6
///   Tensor image = Tensor::empty(DType::u8, {3, 224, 224}).value();
///   std::memset(image.mutable_bytes().data(), 0, image.size_bytes());
///
/// Owns:    a share of the storage; copying a Tensor copies no elements. Memory that a peer lent is
///          not mapped in a forked child: touching it there is SIGSEGV (docs/fork.md).
/// Threads: a value; the threads that share the elements synchronise them.
/// Errors:  of, span, bytes and item throw Exception; make, try_span and try_bytes return the same
///          error.
/// Blocks:  never.
/// Cost:    about 350 bytes and one shared count; factories other than view allocate the elements.
class TENDON_API Tensor {
 public:
  /// No elements: u8 of shape [0].
  Tensor();

  /// A row-major tensor with these elements: `Tensor::of<float>({2, 2}, {1, 2, 3, 4})`.
  template <class T>
  [[nodiscard]] static Tensor of(const Shape& shape, std::initializer_list<T> values) {
    return make<T>(shape, std::span<const T>(values.begin(), values.size())).value();
  }
  template <class T>
  [[nodiscard]] static Tensor of(const Shape& shape, std::span<const T> values) {
    return make<T>(shape, values).value();
  }
  /// The same from a span; invalid_argument unless `values` are as many as the shape says.
  template <class T>
  [[nodiscard]] static Result<Tensor> make(const Shape& shape, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return from_bytes(dtype_of<T>(), shape, std::as_bytes(values));
  }
  /// A row-major copy of these bytes; invalid_argument unless their number is that of the shape.
  [[nodiscard]] static Result<Tensor> from_bytes(DType dtype, const Shape& shape, Bytes bytes);
  /// Row-major, contents unspecified, aligned to 64 bytes; resource_exhausted when memory is short.
  [[nodiscard]] static Result<Tensor> empty(DType dtype, const Shape& shape);
  /// Row-major, every byte zero.
  [[nodiscard]] static Result<Tensor> zeros(DType dtype, const Shape& shape);
  /// A view of the row-major elements at `offset_bytes` of `storage`. invalid_argument if they
  /// would not lie inside it. The address need not be a multiple of the element size.
  [[nodiscard]] static Result<Tensor> view(Storage storage, std::uint64_t offset_bytes, DType dtype,
                                           const Shape& shape);
  /// A view with the given strides. Element [0, 0, ...] lies at `offset_bytes`, and every element
  /// must lie inside the storage.
  [[nodiscard]] static Result<Tensor> view(Storage storage, std::uint64_t offset_bytes, DType dtype,
                                           const Shape& shape, const Strides& strides);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const& noexcept { return shape_; }
  [[nodiscard]] Shape shape() && noexcept { return shape_; }
  [[nodiscard]] const Strides& strides() const& noexcept { return strides_; }
  [[nodiscard]] Strides strides() && noexcept { return strides_; }
  [[nodiscard]] Device device() const noexcept { return storage_.device(); }
  [[nodiscard]] Access access() const noexcept { return storage_.access(); }
  /// The storage that keeps the memory alive; it may be larger than the tensor.
  [[nodiscard]] const Storage& storage() const& noexcept { return storage_; }
  [[nodiscard]] Storage storage() && noexcept { return std::move(storage_); }

  [[nodiscard]] std::size_t dimension_count() const noexcept { return shape_.size(); }
  [[nodiscard]] std::int64_t element_count() const noexcept { return element_count_; }
  /// Bytes of all elements, counted without gaps.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept;
  /// The address of element [0, 0, ...].
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  /// True for row-major elements without gaps, and for a tensor without elements.
  [[nodiscard]] bool is_contiguous() const noexcept { return contiguous_; }

  /// The elements in row-major order, no copy. unsupported_dtype when T is not the element type,
  /// not_contiguous, read_only for a T that is not const, unsupported_device off the CPU.
  /// invalid_argument when the address is no multiple of alignof(T), as in a foreign file perhaps;
  /// contiguous() makes a copy then. For a type without a C++ name specialise DTypeOf, or use
  /// bytes().
  template <class T>
  [[nodiscard]] Result<std::span<T>> try_span() const {
    if (auto ok = check_span(dtype_of<std::remove_const_t<T>>(), alignof(T), wanted_access<T>());
        !ok)
      return std::move(ok).error();
    return std::span<T>(reinterpret_cast<T*>(data_), static_cast<std::size_t>(element_count_));
  }
  template <class T>
  [[nodiscard]] std::span<T> span() const {
    return try_span<T>().value();
  }

  /// The bytes of all elements in row-major order, no copy; errors as try_span.
  [[nodiscard]] Result<Bytes> try_bytes() const;
  [[nodiscard]] Bytes bytes() const { return try_bytes().value(); }
  [[nodiscard]] Result<MutableBytes> try_mutable_bytes() const;
  [[nodiscard]] MutableBytes mutable_bytes() const { return try_mutable_bytes().value(); }

  /// One element, any strides and any alignment: `t.item<float>({1, 2})`, `scalar.item<int>()`.
  /// Throws unsupported_dtype, or invalid_argument for an index outside the shape.
  template <class T>
  [[nodiscard]] T item(std::initializer_list<std::int64_t> index = {}) const {
    T value;
    std::memcpy(&value, element(dtype_of<T>(), index, Access::read_only), sizeof value);
    return value;
  }
  template <class T>
  void set_item(std::initializer_list<std::int64_t> index, std::type_identity_t<T> value) const {
    std::memcpy(element(dtype_of<T>(), index, Access::read_write), &value, sizeof value);
  }

  /// Returns this tensor if it is contiguous and its address a multiple of its element size, else a
  /// copy that is; unsupported_device for a copy off the CPU.
  [[nodiscard]] Result<Tensor> contiguous() const;
  /// Elements [start, stop) of one dimension; a view.
  [[nodiscard]] Result<Tensor> slice(std::size_t dimension, std::int64_t start,
                                     std::int64_t stop) const;
  /// The elements at one index of one dimension, which disappears; a view.
  [[nodiscard]] Result<Tensor> select(std::size_t dimension, std::int64_t index) const;
  /// Exchanges two dimensions; a view.
  [[nodiscard]] Result<Tensor> transpose(std::size_t first, std::size_t second) const;
  /// The same elements in another shape; a view, so this must be contiguous.
  [[nodiscard]] Result<Tensor> reshape(const Shape& shape) const;

 private:
  template <class T>
  static constexpr Access wanted_access() {
    return std::is_const_v<T> ? Access::read_only : Access::read_write;
  }
  [[nodiscard]] Result<void> check_span(DType dtype, std::size_t alignment, Access access) const;
  [[nodiscard]] std::byte* element(DType dtype, std::initializer_list<std::int64_t> index,
                                   Access access) const;
  Tensor(Storage storage, std::byte* data, DType dtype, const Shape& shape, const Strides& strides,
         std::int64_t element_count);

  Storage storage_;
  std::byte* data_ = nullptr;
  std::int64_t element_count_ = 0;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::u8;
  bool contiguous_ = true;
};

/// True for the same dtype, shape and bits of every element; strides, storage and device may
/// differ. Two tensors off the CPU are equal only when they are the same memory.
[[nodiscard]] TENDON_API bool bitwise_equal(const Tensor& a, const Tensor& b);

/// "f32 [2, 2] {1, 2, 3, 4}"; values of small tensors only.
TENDON_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace v0
}  // namespace tendon
