// SPDX-License-Identifier: Apache-2.0
// Integers and bool. This file includes itself once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "group/reduce/reduce_integers.cpp"
#include "group/reduce/reduce_kernels.hpp"
// The following code is compiled per target; the order matters.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "group/reduce/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tendon::v0::detail::HWY_NAMESPACE {
namespace {

struct Product : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
#if HWY_TARGET != HWY_SCALAR
    // No processor multiplies bytes; the low byte of a product does not see the high ones.
    if constexpr (sizeof(hn::TFromV<V>) == 1) {
      const hn::DFromV<V> d;
      const hn::Repartition<std::uint16_t, decltype(d)> d16;
      const auto a = hn::BitCast(d16, so_far);
      const auto b = hn::BitCast(d16, v);
      const auto even = hn::And(hn::Mul(a, b), hn::Set(d16, 0xff));
      const auto odd = hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b));
      return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
    } else
#endif
      return hn::Mul(so_far, v);
  }
};

struct Min : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Min(so_far, v);
  }
};

struct Max : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Max(so_far, v);
  }
};

struct BitAnd : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::And(so_far, v);
  }
};

struct BitOr : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Or(so_far, v);
  }
};

struct BitXor : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Xor(so_far, v);
  }
};

/// Elements of bool: any byte but 0 is true.
struct Truths : Plain<std::uint8_t> {
  HWY_INLINE hn::Vec<hn::ScalableTag<std::uint8_t>> load(const std::byte* from) const {
    return hn::Min(Plain<std::uint8_t>::load(from), hn::Set(d, 1));
  }
};

void combine_bools(const Reduction& reduction) {
  switch (reduction.kind) {
    case ReduceKind::product:
    case ReduceKind::min:
    case ReduceKind::bit_and:
      return combine(reduction, Truths{}, BitAnd{});
    case ReduceKind::bit_xor:
      return combine(reduction, Truths{}, BitXor{});
    default:
      return combine(reduction, Truths{}, BitOr{});
  }
}

/// Operations that ignore the sign; bit operations ignore even the width.
template <class Unsigned, class T>
void combine_integers(const Reduction& reduction) {
  switch (reduction.kind) {
    case ReduceKind::sum:
      return combine(reduction, Plain<Unsigned>{}, Sum{});
    case ReduceKind::product:
      return combine(reduction, Plain<Unsigned>{}, Product{});
    case ReduceKind::min:
      return combine(reduction, Plain<T>{}, Min{});
    case ReduceKind::max:
      return combine(reduction, Plain<T>{}, Max{});
    default:
      break;  // check_reduce() refused them
  }
}
}  // namespace

void integers(const Reduction& reduction, DType dtype) {
  if (dtype == DType::boolean) return combine_bools(reduction);
  switch (reduction.kind) {
    case ReduceKind::bit_and:
      return combine(reduction, Plain<std::uint8_t>{}, BitAnd{});
    case ReduceKind::bit_or:
      return combine(reduction, Plain<std::uint8_t>{}, BitOr{});
    case ReduceKind::bit_xor:
      return combine(reduction, Plain<std::uint8_t>{}, BitXor{});
    default:
      break;
  }
  switch (dtype) {
    case DType::u8:
      return combine_integers<std::uint8_t, std::uint8_t>(reduction);
    case DType::i8:
      return combine_integers<std::uint8_t, std::int8_t>(reduction);
    case DType::u16:
      return combine_integers<std::uint16_t, std::uint16_t>(reduction);
    case DType::i16:
      return combine_integers<std::uint16_t, std::int16_t>(reduction);
    case DType::u32:
      return combine_integers<std::uint32_t, std::uint32_t>(reduction);
    case DType::i32:
      return combine_integers<std::uint32_t, std::int32_t>(reduction);
    case DType::u64:
      return combine_integers<std::uint64_t, std::uint64_t>(reduction);
    case DType::i64:
      return combine_integers<std::uint64_t, std::int64_t>(reduction);
    default:
      break;  // reduce() sent the others elsewhere
  }
}

}  // namespace tendon::v0::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tendon::v0::detail {

HWY_EXPORT(integers);

void reduce_integers(const Reduction& reduction, DType dtype) {
  HWY_DYNAMIC_DISPATCH(integers)(reduction, dtype);
}

}  // namespace tendon::v0::detail
#endif
