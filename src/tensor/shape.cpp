// SPDX-License-Identifier: Apache-2.0
#include <tendon/tensor/shape.hpp>

namespace tendon::v0 {
namespace {

std::string join(std::span<const std::int64_t> items) {
  std::string text = "[";
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(items[i]);
  return text + "]";
}

Error too_many(std::size_t count) {
  return Error{
      ErrorCode::limit_exceeded, "tensor.shape",
      std::to_string(count) + " dimensions; legal are 0 to " + std::to_string(kMaxDimensions)};
}

}  // namespace

Result<Shape> Shape::make(std::span<const std::int64_t> sizes) {
  if (sizes.size() > kMaxDimensions) return too_many(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) {
      return Error{ErrorCode::invalid_argument, "tensor.shape",
                   "dimension " + std::to_string(i) + " of shape " + join(sizes) +
                       " is negative; legal are 0 to 2^63 - 1"};
    }
  }
  return Shape(sizes);
}

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(make(std::span(sizes.begin(), sizes.size())).value()) {}

Result<std::int64_t> Shape::element_count() const {
  std::int64_t product = 1;
  bool has_zero = false;
  for (const std::int64_t size : *this) {
    if (size == 0) {
      has_zero = true;
    } else if (__builtin_mul_overflow(product, size, &product)) {
      return Error{ErrorCode::limit_exceeded, "tensor.shape",
                   "shape " + to_string(*this) + " has more than 2^63 - 1 elements"};
    }
  }
  return has_zero ? 0 : product;
}

Result<std::uint64_t> Shape::size_bytes(DType dtype) const {
  TENDON_TRY(count, element_count());
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(count), item_size_bytes(dtype), &bytes) ||
      bytes > kMaxTensorBytes) {
    return Error{ErrorCode::limit_exceeded, "tensor.shape",
                 "shape " + to_string(*this) + " of " + std::string(to_string(dtype)) +
                     " is more than 2^63 - 1 bytes"};
  }
  return bytes;
}

bool Shape::starts_with(const Shape& prefix) const noexcept {
  return prefix.size() <= size() && std::equal(prefix.begin(), prefix.end(), begin());
}

Result<Strides> Strides::make(std::span<const std::int64_t> strides) {
  if (strides.size() > kMaxDimensions) return too_many(strides.size());
  return Strides(strides);
}

Strides::Strides(std::initializer_list<std::int64_t> strides)
    : Strides(make(std::span(strides.begin(), strides.size())).value()) {}

Strides Strides::row_major(const Shape& shape) {
  Strides strides;
  strides.count_ = static_cast<std::uint8_t>(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides.items_[i] = step;
    // A dimension without elements counts as one: element_count() checked the product of the
    // others.
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string to_string(const Shape& shape) { return join(shape.span()); }
std::string to_string(const Strides& strides) { return join(strides.span()); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }
std::ostream& operator<<(std::ostream& out, const Strides& strides) {
  return out << to_string(strides);
}

}  // namespace tendon::v0
