// SPDX-License-Identifier: Apache-2.0
#include "group/reduce/reduce.hpp"

#include <cstring>
#include <string>

#include "core/float_mode.hpp"
#include "group/reduce/reduce_kernels.hpp"

namespace tendon::v0::detail {
namespace {

bool is_legal(ReduceKind kind, DType dtype) {
  enum class Class : std::uint8_t { boolean, integer, real, complex, scale };
  const auto class_of = [](DType type) {
    switch (type) {
      case DType::boolean:
        return Class::boolean;
      case DType::u8:
      case DType::i8:
      case DType::u16:
      case DType::i16:
      case DType::u32:
      case DType::i32:
      case DType::u64:
      case DType::i64:
        return Class::integer;
      case DType::c32:
      case DType::c64:
      case DType::c128:
        return Class::complex;
      case DType::f8_e8m0fnu:
        return Class::scale;
      case DType::f16:
      case DType::bf16:
      case DType::f32:
      case DType::f64:
      case DType::f8_e3m4:
      case DType::f8_e4m3:
      case DType::f8_e4m3b11fnuz:
      case DType::f8_e4m3fn:
      case DType::f8_e4m3fnuz:
      case DType::f8_e5m2:
      case DType::f8_e5m2fnuz:
        break;
    }
    return Class::real;
  }(dtype);
  switch (kind) {
    case ReduceKind::sum:
      return class_of != Class::scale;
    case ReduceKind::product:
    case ReduceKind::min:
    case ReduceKind::max:
      return class_of != Class::scale && class_of != Class::complex;
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      return class_of == Class::real || class_of == Class::complex;
    case ReduceKind::bit_and:
    case ReduceKind::bit_or:
    case ReduceKind::bit_xor:
      return class_of == Class::integer || class_of == Class::boolean;
  }
  return false;
}

}  // namespace

Result<void> check_reduce(const ReduceOp& op, DType dtype, std::string_view where) {
  if (is_legal(op.kind(), dtype)) return {};
  std::string detail = std::string(to_string(op)) + " is not defined for elements of type " +
                       std::string(to_string(dtype));
  if (dtype == DType::f8_e8m0fnu) {
    detail += ", which are scales (powers of two, no zero, no sign) and are never reduced";
  } else {
    detail += "; it is for";
    std::string_view separator = " ";
    for (const DTypeInfo& info : dtype_table()) {
      if (!is_legal(op.kind(), info.dtype)) continue;
      (detail += separator) += info.name;
      separator = ", ";
    }
  }
  return Error{ErrorCode::unsupported_dtype, where, std::move(detail)};
}

void reduce(const ReduceOp& op, DType dtype, MutableBytes out,
            std::span<const std::byte* const> inputs) {
  const bool is_copy = inputs.size() == 1 && dtype != DType::boolean &&
                       op.kind() != ReduceKind::avg && op.kind() != ReduceKind::premul_sum;
  if (is_copy) {
    if (!out.empty() && out.data() != inputs[0]) std::memcpy(out.data(), inputs[0], out.size());
    return;
  }
  const Reduction reduction{op.kind(), op.factor(), out, inputs};
  // The replicas differ if one thread flushes or rounds in another way than the others. The kernels
  // are called through tables of functions: no compiler moves them across this.
  const DefaultFloatMode mode;
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::c32:
    case DType::f8_e3m4:
    case DType::f8_e4m3:
    case DType::f8_e4m3b11fnuz:
    case DType::f8_e4m3fn:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2:
    case DType::f8_e5m2fnuz:
      return reduce_small_floats(reduction, dtype);
    case DType::f32:
    case DType::f64:
    case DType::c64:
    case DType::c128:
      return reduce_floats(reduction, dtype);
    default:
      return reduce_integers(reduction, dtype);
  }
}

}  // namespace tendon::v0::detail
