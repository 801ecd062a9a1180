// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/limits.hpp>

namespace tendon {
inline namespace v0 {

namespace detail {

/// Up to kMaxDimensions numbers in place: shapes and strides never allocate.
class Dimensions {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::int64_t operator[](std::size_t index) const noexcept { return items_[index]; }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return items_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return items_.data() + count_; }
  [[nodiscard]] const std::int64_t* data() const noexcept { return items_.data(); }
  [[nodiscard]] std::span<const std::int64_t> span() const noexcept { return {begin(), size()}; }

 protected:
  Dimensions() = default;
  /// Precondition: at most kMaxDimensions.
  explicit Dimensions(std::span<const std::int64_t> items)
      : count_(static_cast<std::uint8_t>(items.size())) {
    std::copy(items.begin(), items.end(), items_.begin());
  }
  Dimensions(const Dimensions& other) noexcept : count_(other.count_) {
    std::copy(other.begin(), other.end(), items_.begin());
  }
  Dimensions& operator=(const Dimensions& other) noexcept {
    count_ = other.count_;
    std::copy(other.begin(), other.end(), items_.begin());
    return *this;
  }
  [[nodiscard]] bool equals(const Dimensions& other) const noexcept {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

  // Only the first count_ are ever read: copying 16 numbers for a vector of one dimension would
  // cost measurable time.
  std::array<std::int64_t, kMaxDimensions> items_;
  std::uint8_t count_ = 0;
};

}  // namespace detail

/// The size of each dimension [elements], outermost first. Without dimensions: a scalar of one
/// element. A zero is legal: a tensor without elements.
///
/// Example:
///   const Shape images{32, 3, 224, 224};
///   std::cout << images << ": " << images.size_bytes(DType::u8).value() << " bytes\n";
///   if (images.starts_with(Shape{32})) std::cout << "a batch of " << images[0] << '\n';
///   const std::vector<std::int64_t> sizes = {2, -1};
///   Result<Shape> wrong = Shape::make(sizes);
///   if (!wrong) std::cerr << wrong.error().message() << '\n';
///
/// Owns:    its numbers, in place.
/// Threads: a value.
/// Errors:  invalid_argument for a negative size, limit_exceeded for more than kMaxDimensions.
/// Blocks:  never.
/// Cost:    no allocation.
class TENDON_API Shape : public detail::Dimensions {
 public:
  Shape() = default;
  /// `Shape{2, 3}`; throws the errors of make().
  Shape(std::initializer_list<std::int64_t> sizes);  // NOLINT(google-explicit-constructor)
  [[nodiscard]] static Result<Shape> make(std::span<const std::int64_t> sizes);

  /// The product of all sizes; 1 for a scalar. limit_exceeded when the product of the sizes that
  /// are not zero does not fit in an int64.
  [[nodiscard]] Result<std::int64_t> element_count() const;
  /// element_count() x item size; limit_exceeded above kMaxTensorBytes.
  [[nodiscard]] Result<std::uint64_t> size_bytes(DType dtype) const;
  /// True when the first dimensions are those of `prefix`.
  [[nodiscard]] bool starts_with(const Shape& prefix) const noexcept;

  friend bool operator==(const Shape& a, const Shape& b) noexcept { return a.equals(b); }

 private:
  explicit Shape(std::span<const std::int64_t> sizes) : Dimensions(sizes) {}
};

/// The distance between neighbours in each dimension [elements]; zero and negative are legal.
///
/// Example:
///   const Shape shape{4, 6};
///   std::cout << Strides::row_major(shape) << '\n';  // [6, 1]
///   Storage storage = Storage::allocate(24 * sizeof(float)).value();
///   Tensor columns = Tensor::view(storage, 0, DType::f32, {6, 4}, {1, 6}).value();
///   Tensor row = Tensor::view(storage, 0, DType::f32, {4, 6}, {0, 1}).value();  // four times
///
/// Owns:    its numbers, in place.
/// Threads: a value.
/// Errors:  limit_exceeded for more than kMaxDimensions.
/// Blocks:  never.
/// Cost:    no allocation.
class TENDON_API Strides : public detail::Dimensions {
 public:
  Strides() = default;
  /// `Strides{3, 1}`; throws the errors of make().
  Strides(std::initializer_list<std::int64_t> strides);  // NOLINT(google-explicit-constructor)
  [[nodiscard]] static Result<Strides> make(std::span<const std::int64_t> strides);
  /// Strides of a row-major tensor without gaps. Precondition: shape.element_count() succeeds.
  [[nodiscard]] static Strides row_major(const Shape& shape);

  friend bool operator==(const Strides& a, const Strides& b) noexcept { return a.equals(b); }

 private:
  explicit Strides(std::span<const std::int64_t> strides) : Dimensions(strides) {}
};

/// "[2, 3]"; "[]" for a scalar.
[[nodiscard]] TENDON_API std::string to_string(const Shape& shape);
[[nodiscard]] TENDON_API std::string to_string(const Strides& strides);
TENDON_API std::ostream& operator<<(std::ostream& out, const Shape& shape);
TENDON_API std::ostream& operator<<(std::ostream& out, const Strides& strides);

}  // namespace v0
}  // namespace tendon
