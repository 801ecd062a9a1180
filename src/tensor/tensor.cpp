// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "tensor/copy.hpp"
#include "tensor/extent.hpp"

namespace tendon::v0 {
namespace {

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.tensor", std::move(detail)};
}

std::string describe(DType dtype, const Shape& shape) {
  return std::string(to_string(dtype)) + " " + to_string(shape);
}

bool is_row_major(const Shape& shape, const Strides& strides, std::int64_t element_count) {
  if (element_count == 0) return true;
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

Error outside(const Storage& storage, std::uint64_t offset_bytes, DType dtype, const Shape& shape,
              const Strides& strides) {
  return error(ErrorCode::invalid_argument,
               describe(dtype, shape) + " with strides " + to_string(strides) + " at byte " +
                   std::to_string(offset_bytes) + " does not lie inside its storage of " +
                   std::to_string(storage.size_bytes()) + " bytes");
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 31;
  const std::uint32_t fraction = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void print_number(std::ostream& out, T value) {
  char digits[64];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  out.write(digits, end - digits);
}

template <class T>
void print_complex(std::ostream& out, T real, T imaginary) {
  print_number(out, real);
  if (!std::signbit(imaginary)) out << '+';
  print_number(out, imaginary);
  out << 'i';
}

void print_element(std::ostream& out, DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::boolean:
      out << (load<std::uint8_t>(at) != 0 ? "true" : "false");
      return;
    case DType::u8:
      return print_number(out, load<std::uint8_t>(at));
    case DType::i8:
      return print_number(out, load<std::int8_t>(at));
    case DType::u16:
      return print_number(out, load<std::uint16_t>(at));
    case DType::i16:
      return print_number(out, load<std::int16_t>(at));
    case DType::u32:
      return print_number(out, load<std::uint32_t>(at));
    case DType::i32:
      return print_number(out, load<std::int32_t>(at));
    case DType::u64:
      return print_number(out, load<std::uint64_t>(at));
    case DType::i64:
      return print_number(out, load<std::int64_t>(at));
    case DType::f16:
      return print_number(out, half_to_float(load<std::uint16_t>(at)));
    case DType::bf16:
      return print_number(
          out, std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(at)) << 16));
    case DType::f32:
      return print_number(out, load<float>(at));
    case DType::f64:
      return print_number(out, load<double>(at));
    case DType::c32:
      return print_complex(out, half_to_float(load<std::uint16_t>(at)),
                           half_to_float(load<std::uint16_t>(at + 2)));
    case DType::c64:
      return print_complex(out, load<float>(at), load<float>(at + 4));
    case DType::c128:
      return print_complex(out, load<double>(at), load<double>(at + 8));
    case DType::f8_e3m4:
    case DType::f8_e4m3:
    case DType::f8_e4m3b11fnuz:
    case DType::f8_e4m3fn:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2:
    case DType::f8_e5m2fnuz:
    case DType::f8_e8m0fnu: {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto bits = load<std::uint8_t>(at);
      out << "0x" << kHex[bits >> 4] << kHex[bits & 15];
      return;
    }
  }
}

}  // namespace

Tensor::Tensor() : shape_{0}, strides_{1} {}

Tensor::Tensor(Storage storage, std::byte* data, DType dtype, const Shape& shape,
               const Strides& strides, std::int64_t element_count)
    : storage_(std::move(storage)),
      data_(data),
      element_count_(element_count),
      shape_(shape),
      strides_(strides),
      dtype_(dtype),
      contiguous_(is_row_major(shape, strides, element_count)) {}

Result<Tensor> Tensor::from_bytes(DType dtype, const Shape& shape, Bytes bytes) {
  TENDON_TRY(size_bytes, shape.size_bytes(dtype));
  if (size_bytes != bytes.size()) {
    return error(ErrorCode::invalid_argument,
                 describe(dtype, shape) + " needs " + std::to_string(size_bytes) + " bytes (" +
                     std::to_string(size_bytes / item_size_bytes(dtype)) + " elements), got " +
                     std::to_string(bytes.size()));
  }
  TENDON_TRY(tensor, empty(dtype, shape));
  if (!bytes.empty()) std::memcpy(tensor.data_, bytes.data(), bytes.size());
  return tensor;
}

Result<Tensor> Tensor::empty(DType dtype, const Shape& shape) {
  TENDON_TRY(size_bytes, shape.size_bytes(dtype));
  TENDON_TRY(storage, Storage::allocate(size_bytes));
  return view(std::move(storage), 0, dtype, shape);
}

Result<Tensor> Tensor::zeros(DType dtype, const Shape& shape) {
  TENDON_TRY(tensor, empty(dtype, shape));
  if (tensor.size_bytes() != 0) std::memset(tensor.data_, 0, tensor.size_bytes());
  return tensor;
}

Result<Tensor> Tensor::view(Storage storage, std::uint64_t offset_bytes, DType dtype,
                            const Shape& shape) {
  TENDON_TRY(size_bytes, shape.size_bytes(dtype));
  // Every access to a packed leaf is checked here: row-major elements need one comparison only.
  if (offset_bytes > storage.size_bytes() || size_bytes > storage.size_bytes() - offset_bytes) {
    return outside(storage, offset_bytes, dtype, shape, Strides::row_major(shape));
  }
  std::byte* const data = storage.data() == nullptr ? nullptr : storage.data() + offset_bytes;
  return Tensor(std::move(storage), data, dtype, shape, Strides::row_major(shape),
                static_cast<std::int64_t>(size_bytes / item_size_bytes(dtype)));
}

Result<Tensor> Tensor::view(Storage storage, std::uint64_t offset_bytes, DType dtype,
                            const Shape& shape, const Strides& strides) {
  TENDON_CHECK(shape.size_bytes(dtype));
  TENDON_TRY(element_count, shape.element_count());
  if (strides.size() != shape.size()) {
    return error(ErrorCode::invalid_argument, std::to_string(strides.size()) + " strides for the " +
                                                  std::to_string(shape.size()) +
                                                  " dimensions of shape " + to_string(shape));
  }
  if (offset_bytes > storage.size_bytes())
    return outside(storage, offset_bytes, dtype, shape, strides);
  if (element_count > 0) {
    const auto extent = detail::byte_extent(dtype, shape, strides);
    if (!extent) return outside(storage, offset_bytes, dtype, shape, strides);
    const std::uint64_t before = -static_cast<std::uint64_t>(extent->begin);
    const std::uint64_t after = storage.size_bytes() - offset_bytes;
    if (before > offset_bytes || static_cast<std::uint64_t>(extent->end) > after)
      return outside(storage, offset_bytes, dtype, shape, strides);
  }
  std::byte* const data = storage.data() == nullptr ? nullptr : storage.data() + offset_bytes;
  return Tensor(std::move(storage), data, dtype, shape, strides, element_count);
}

std::uint64_t Tensor::size_bytes() const noexcept {
  return static_cast<std::uint64_t>(element_count_) * item_size_bytes(dtype_);
}

Result<void> Tensor::check_span(DType dtype, std::size_t alignment, Access access) const {
  if (dtype != dtype_) {
    return error(ErrorCode::unsupported_dtype, "this tensor holds " +
                                                   std::string(to_string(dtype_)) + ", asked for " +
                                                   std::string(to_string(dtype)));
  }
  if (device() != cpu()) {
    return error(ErrorCode::unsupported_device,
                 "the elements lie on " + to_string(device()) + "; only the CPU's can be reached");
  }
  if (!contiguous_) {
    return error(ErrorCode::not_contiguous, describe(dtype_, shape_) + " has strides " +
                                                to_string(strides_) +
                                                "; contiguous() makes a copy");
  }
  if (access == Access::read_write && storage_.access() == Access::read_only) {
    return error(ErrorCode::read_only,
                 describe(dtype_, shape_) + " lies in memory that may only be read");
  }
  if (reinterpret_cast<std::uintptr_t>(data_) % alignment != 0) {
    return error(ErrorCode::invalid_argument,
                 describe(dtype_, shape_) + " starts at an address that is no multiple of " +
                     std::to_string(alignment) + "; contiguous() makes a copy that does");
  }
  return {};
}

Result<Bytes> Tensor::try_bytes() const {
  TENDON_CHECK(check_span(dtype_, 1, Access::read_only));
  return Bytes(data_, size_bytes());
}

Result<MutableBytes> Tensor::try_mutable_bytes() const {
  TENDON_CHECK(check_span(dtype_, 1, Access::read_write));
  return MutableBytes(data_, size_bytes());
}

std::byte* Tensor::element(DType dtype, std::initializer_list<std::int64_t> index,
                           Access access) const {
  const auto refuse = [](ErrorCode code, std::string detail) {
    throw Exception(error(code, std::move(detail)));
  };
  if (dtype != dtype_) {
    refuse(ErrorCode::unsupported_dtype, "this tensor holds " + std::string(to_string(dtype_)) +
                                             ", asked for " + std::string(to_string(dtype)));
  }
  if (device() != cpu()) {
    refuse(ErrorCode::unsupported_device, "the elements lie on " + to_string(device()));
  }
  if (access == Access::read_write && storage_.access() == Access::read_only) {
    refuse(ErrorCode::read_only,
           describe(dtype_, shape_) + " lies in memory that may only be read");
  }
  bool inside = index.size() == shape_.size();
  std::int64_t offset = 0;
  for (std::size_t i = 0; inside && i < index.size(); ++i) {
    const std::int64_t at = index.begin()[i];
    inside = at >= 0 && at < shape_[i];
    // Only the offset of a reachable element is computed: view() checked that none overflows.
    if (inside) offset += at * strides_[i];
  }
  if (!inside) {
    refuse(ErrorCode::invalid_argument,
           "index " + to_string(Strides::make({index.begin(), index.size()}).value_or(Strides())) +
               " is outside shape " + to_string(shape_));
  }
  return data_ + offset * static_cast<std::int64_t>(item_size_bytes(dtype_));
}

Result<Tensor> Tensor::contiguous() const {
  const std::size_t alignment = std::min<std::size_t>(item_size_bytes(dtype_), 8);
  if (contiguous_ && reinterpret_cast<std::uintptr_t>(data_) % alignment == 0) return *this;
  if (device() != cpu()) {
    return error(ErrorCode::unsupported_device,
                 "the elements lie on " + to_string(device()) + "; only the CPU's can be copied");
  }
  TENDON_TRY(copy, empty(dtype_, shape_));
  detail::gather(*this, MutableBytes(copy.data_, copy.size_bytes()));
  return copy;
}

Result<Tensor> Tensor::slice(std::size_t dimension, std::int64_t start, std::int64_t stop) const {
  if (dimension >= shape_.size() || start < 0 || start > stop || stop > shape_[dimension]) {
    return error(ErrorCode::invalid_argument, "elements " + std::to_string(start) + " to " +
                                                  std::to_string(stop) + " of dimension " +
                                                  std::to_string(dimension) +
                                                  " are outside shape " + to_string(shape_));
  }
  std::vector<std::int64_t> sizes(shape_.begin(), shape_.end());
  sizes[dimension] = stop - start;
  TENDON_TRY(shape, Shape::make(sizes));
  TENDON_TRY(element_count, shape.element_count());
  // A tensor without elements keeps its address: one past the last element may lie outside the
  // storage.
  const std::int64_t step =
      element_count == 0
          ? 0
          : start * strides_[dimension] * static_cast<std::int64_t>(item_size_bytes(dtype_));
  return Tensor(storage_, data_ + step, dtype_, shape, strides_, element_count);
}

Result<Tensor> Tensor::select(std::size_t dimension, std::int64_t index) const {
  if (dimension >= shape_.size() || index < 0 || index >= shape_[dimension]) {
    return error(ErrorCode::invalid_argument, "index " + std::to_string(index) + " of dimension " +
                                                  std::to_string(dimension) + " is outside shape " +
                                                  to_string(shape_));
  }
  TENDON_TRY(row, slice(dimension, index, index + 1));
  std::vector<std::int64_t> sizes(row.shape_.begin(), row.shape_.end());
  std::vector<std::int64_t> steps(strides_.begin(), strides_.end());
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dimension));
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(dimension));
  TENDON_TRY(shape, Shape::make(sizes));
  TENDON_TRY(strides, Strides::make(steps));
  return Tensor(storage_, row.data_, dtype_, shape, strides, row.element_count_);
}

Result<Tensor> Tensor::transpose(std::size_t first, std::size_t second) const {
  if (first >= shape_.size() || second >= shape_.size()) {
    return error(ErrorCode::invalid_argument,
                 "dimensions " + std::to_string(first) + " and " + std::to_string(second) +
                     " cannot change places in shape " + to_string(shape_));
  }
  std::vector<std::int64_t> sizes(shape_.begin(), shape_.end());
  std::vector<std::int64_t> steps(strides_.begin(), strides_.end());
  std::swap(sizes[first], sizes[second]);
  std::swap(steps[first], steps[second]);
  TENDON_TRY(shape, Shape::make(sizes));
  TENDON_TRY(strides, Strides::make(steps));
  return Tensor(storage_, data_, dtype_, shape, strides, element_count_);
}

Result<Tensor> Tensor::reshape(const Shape& shape) const {
  TENDON_TRY(element_count, shape.element_count());
  if (element_count != element_count_) {
    return error(ErrorCode::invalid_argument, "shape " + to_string(shape_) + " has " +
                                                  std::to_string(element_count_) +
                                                  " elements, shape " + to_string(shape) + " has " +
                                                  std::to_string(element_count));
  }
  if (!contiguous_) {
    return error(ErrorCode::not_contiguous, describe(dtype_, shape_) + " has strides " +
                                                to_string(strides_) +
                                                "; contiguous() makes a copy");
  }
  return Tensor(storage_, data_, dtype_, shape, Strides::row_major(shape), element_count);
}

bool bitwise_equal(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
  if (a.element_count() == 0) return true;
  if (a.data() == b.data() && a.strides() == b.strides()) return true;
  if (a.device() != cpu()) return false;
  if (a.is_contiguous() && b.is_contiguous())
    return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  std::array<std::byte, 4096> left;
  std::array<std::byte, 4096> right;
  for (std::uint64_t at = 0; at < a.size_bytes(); at += left.size()) {
    const std::size_t count = std::min<std::uint64_t>(left.size(), a.size_bytes() - at);
    detail::gather_piece(a, at, {left.data(), count});
    detail::gather_piece(b, at, {right.data(), count});
    if (std::memcmp(left.data(), right.data(), count) != 0) return false;
  }
  return true;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  constexpr std::int64_t kMaxPrinted = 8;
  out << tensor.dtype() << ' ' << tensor.shape();
  if (tensor.device() != cpu()) return out << " on " << tensor.device();
  if (tensor.element_count() == 0 || tensor.element_count() > kMaxPrinted) return out;
  std::array<std::byte, kMaxPrinted * 16> bytes;
  detail::gather(tensor, {bytes.data(), tensor.size_bytes()});
  out << " {";
  for (std::int64_t i = 0; i < tensor.element_count(); ++i) {
    if (i != 0) out << ", ";
    print_element(out, tensor.dtype(),
                  bytes.data() + static_cast<std::uint64_t>(i) * item_size_bytes(tensor.dtype()));
  }
  return out << '}';
}

}  // namespace tendon::v0
