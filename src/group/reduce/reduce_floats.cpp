// SPDX-License-Identifier: Apache-2.0
// f32, f64, and complex numbers of them. This file includes itself once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "group/reduce/reduce_floats.cpp"
#include "group/reduce/reduce_kernels.hpp"
// The following code is compiled per target; the order matters.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "group/reduce/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tendon::v0::detail::HWY_NAMESPACE {
namespace {

/// Makes one NaN of all. Processors differ in which of two NaNs they pass on, and in the sign of
/// the one that they make of inf - inf.
template <class T, class Bits, Bits kNaN>
struct Floats : Plain<T> {
  template <class V>
  HWY_INLINE void store(V v, std::byte* to) const {
    const hn::Rebind<Bits, hn::ScalableTag<T>> bits;
    const V nan = hn::BitCast(this->d, hn::Set(bits, kNaN));
    Plain<T>::store(hn::IfThenElse(hn::IsNaN(v), nan, v), to);
  }
};

}  // namespace

void floats(const Reduction& reduction, DType dtype) {
  // A complex number is two of its parts: all operations that are defined for it treat them alike.
  if (dtype == DType::f32 || dtype == DType::c64)
    return combine_floats<float>(reduction, Floats<float, std::uint32_t, 0x7fc00000u>{});
  combine_floats<double>(reduction, Floats<double, std::uint64_t, 0x7ff8000000000000u>{});
}

}  // namespace tendon::v0::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tendon::v0::detail {

HWY_EXPORT(floats);

void reduce_floats(const Reduction& reduction, DType dtype) {
  HWY_DYNAMIC_DISPATCH(floats)(reduction, dtype);
}

}  // namespace tendon::v0::detail
#endif
