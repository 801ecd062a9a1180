// SPDX-License-Identifier: Apache-2.0
// Floats of 16 and 8 bits, combined in f32. This file includes itself once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "group/reduce/reduce_small_floats.cpp"
#include "group/reduce/reduce_kernels.hpp"
// The following code is compiled per target; the order matters.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "group/reduce/reduce_loop-inl.h"

// In Highway 1.0.3, only those conversions to f16 that the processor has round to the nearest and
// keep denormals.
#undef TENDON_HARDWARE_F16
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3) && !defined(HWY_DISABLE_F16C)
#define TENDON_HARDWARE_F16 1
#else
#define TENDON_HARDWARE_F16 0
#endif

#ifndef TENDON_GROUP_SMALL_FLOAT
#define TENDON_GROUP_SMALL_FLOAT
namespace tendon::v0::detail {
namespace {

/// A float of 16 or 8 bits: sign, exponent, mantissa. Without the sign, numbers lie in order below
/// their NaNs.
struct SmallFloat {
  int bits;
  int mantissa_bits;
  int bias;
  std::int32_t largest;      ///< finite number
  std::int32_t infinity;     ///< the NaN where there is none
  std::int32_t nan;          ///< the one in results
  std::int32_t last;         ///< everything above it, without the sign, is NaN
  std::int32_t signed_from;  ///< the smallest with a negative: 0, or 1 if there is no -0
};

constexpr SmallFloat kF16{16, 10, 15, 0x7bff, 0x7c00, 0x7e00, 0x7c00, 0};

/// The formats of ml_dtypes: IEEE-like; `fn` finite, NaN is all ones; `fnuz` finite, NaN has the
/// bits of -0.
constexpr SmallFloat small_float(DType dtype) {
  switch (dtype) {
    case DType::f8_e3m4:
      return {8, 4, 3, 0x6f, 0x70, 0x78, 0x70, 0};
    case DType::f8_e4m3:
      return {8, 3, 7, 0x77, 0x78, 0x7c, 0x78, 0};
    case DType::f8_e4m3b11fnuz:
      return {8, 3, 11, 0x7f, 0x80, 0x80, 0x7f, 1};
    case DType::f8_e4m3fn:
      return {8, 3, 7, 0x7e, 0x7f, 0x7f, 0x7e, 0};
    case DType::f8_e4m3fnuz:
      return {8, 3, 8, 0x7f, 0x80, 0x80, 0x7f, 1};
    case DType::f8_e5m2:
      return {8, 2, 15, 0x7b, 0x7c, 0x7e, 0x7c, 0};
    case DType::f8_e5m2fnuz:
      return {8, 2, 16, 0x7f, 0x80, 0x80, 0x7f, 1};
    default:
      return kF16;
  }
}

}  // namespace
}  // namespace tendon::v0::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace tendon::v0::detail::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;
using Float = hn::Vec<F32>;
using Bits = hn::Vec<U32>;

constexpr std::uint32_t kInfinityBits = 0x7f800000;
constexpr std::uint32_t kNaNBits = 0x7fc00000;
constexpr std::uint32_t kMagnitude = 0x7fffffff;

/// Bits of f32 as integers that compare as the numbers do.
HWY_INLINE hn::Vec<I32> ordered(Bits bits) { return hn::BitCast(I32(), bits); }

/// `yes` where `a` > `b`, both below 2^31.
HWY_INLINE Bits where_more(Bits a, std::int32_t b, Bits yes, Bits no) {
  const auto mask = hn::Gt(ordered(a), hn::Set(I32(), b));
  return hn::IfThenElse(hn::RebindMask(U32(), mask), yes, no);
}

/// Unsigned integers of T in memory, one vector of f32 at a time.
template <class T>
struct Narrow : OfVectors {
  HWY_INLINE std::size_t step_bytes() const { return hn::Lanes(F32()) * sizeof(T); }
  HWY_INLINE Bits load_bits(const std::byte* from) const {
    const hn::Rebind<T, F32> d;
    return hn::PromoteTo(U32(), hn::LoadU(d, reinterpret_cast<const T*>(from)));
  }
  HWY_INLINE void store_bits(Bits bits, std::byte* to) const {
    const hn::Rebind<T, F32> d;
    hn::StoreU(hn::DemoteTo(d, ordered(bits)), d, reinterpret_cast<T*>(to));
  }
};

/// Two vectors, each with every other element.
struct Pair {
  Float low;
  Float high;
};

template <class Op>
struct OfPairs {
  Op op;

  HWY_INLINE Pair first(Pair v) const { return {op.first(v.low), op.first(v.high)}; }
  HWY_INLINE Pair next(Pair so_far, Pair v) const {
    return {op.next(so_far.low, v.low), op.next(so_far.high, v.high)};
  }
  HWY_INLINE Pair last(Pair v) const { return {op.last(v.low), op.last(v.high)}; }
};

/// Two to a lane of 32 bits: a shift and a mask put them in place, and nothing moves between lanes.
struct BFloat16 {
  template <class Op>
  HWY_INLINE OfPairs<Op> adapt(const Op& op) const {
    return {op};
  }
  HWY_INLINE std::size_t step_bytes() const { return hn::Lanes(U32()) * sizeof(std::uint32_t); }
  HWY_INLINE Pair load(const std::byte* from) const {
    const Bits bits = hn::LoadU(U32(), reinterpret_cast<const std::uint32_t*>(from));
    return {hn::BitCast(F32(), hn::ShiftLeft<16>(bits)),
            hn::BitCast(F32(), hn::And(bits, hn::Set(U32(), 0xffff0000)))};
  }
  HWY_INLINE void store(Pair v, std::byte* to) const {
    const Bits low = hn::ShiftRight<16>(round(v.low));
    const Bits high = hn::And(round(v.high), hn::Set(U32(), 0xffff0000));
    hn::StoreU(hn::Or(low, high), U32(), reinterpret_cast<std::uint32_t*>(to));
  }

 private:
  /// To the nearest, ties to even, in the upper half: Highway's own conversion cuts off.
  static HWY_INLINE Bits round(Float v) {
    const Bits bits = hn::BitCast(U32(), v);
    const Bits odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
    const Bits rounded = hn::Add(hn::Add(bits, hn::Set(U32(), 0x7fff)), odd);
    const auto is_nan = hn::RebindMask(U32(), hn::IsNaN(v));
    return hn::IfThenElse(is_nan, hn::Set(U32(), kNaNBits), rounded);
  }
};

/// T is an unsigned integer of the format's width.
template <class T>
struct Small : Narrow<T> {
  SmallFloat format;

  /// Exact: f32 has room for every number of every format.
  HWY_INLINE Float load(const std::byte* from) const {
    const Bits bits = this->load_bits(from);
    const std::int32_t sign = 1 << (format.bits - 1);
    const Bits magnitude = hn::And(bits, hn::Set(U32(), static_cast<std::uint32_t>(sign - 1)));
    const Bits rebias = hn::Set(U32(), static_cast<std::uint32_t>(127 - format.bias) << 23);
    const Bits normal = hn::Add(hn::ShiftLeftSame(magnitude, 23 - format.mantissa_bits), rebias);
    const Float smallest = hn::Set(F32(), power_of_two(1 - format.bias - format.mantissa_bits));
    const Bits subnormal =
        hn::BitCast(U32(), hn::Mul(hn::ConvertTo(F32(), ordered(magnitude)), smallest));
    Bits number = where_more(magnitude, (1 << format.mantissa_bits) - 1, normal, subnormal);
    number = where_more(magnitude, format.largest, hn::Set(U32(), kInfinityBits), number);
    number = where_more(magnitude, format.last, hn::Set(U32(), kNaNBits), number);
    const Bits negative = hn::ShiftLeftSame(hn::Xor(bits, magnitude), 32 - format.bits);
    number = hn::Or(number, negative);
    // The NaN of the fnuz formats has the bits of -0.
    const auto is_nan = hn::Eq(bits, hn::Set(U32(), static_cast<std::uint32_t>(format.nan)));
    return hn::BitCast(F32(), hn::IfThenElse(is_nan, hn::Set(U32(), kNaNBits), number));
  }

  HWY_INLINE void store(Float v, std::byte* to) const {
    const int shift = 23 - format.mantissa_bits;
    const Bits bits = hn::BitCast(U32(), v);
    const Bits magnitude = hn::And(bits, hn::Set(U32(), kMagnitude));
    // To the nearest, ties to even, by an addition that carries into the remaining bits.
    const Bits odd = hn::And(hn::ShiftRightSame(magnitude, shift), hn::Set(U32(), 1));
    const Bits half = hn::Set(U32(), (1u << (shift - 1)) - 1);
    const Bits rounded = hn::ShiftRightSame(hn::Add(hn::Add(magnitude, half), odd), shift);
    const Bits rebias =
        hn::Set(U32(), static_cast<std::uint32_t>(127 - format.bias) << format.mantissa_bits);
    const Bits normal = hn::Sub(rounded, rebias);
    // A float so large that its last bit is the smallest subnormal: adding it rounds for us.
    const Float magic = hn::Set(F32(), power_of_two(24 - format.bias - format.mantissa_bits));
    const Bits subnormal =
        hn::Sub(hn::BitCast(U32(), hn::Add(hn::BitCast(F32(), magnitude), magic)),
                hn::BitCast(U32(), magic));
    const std::int32_t smallest_normal = (128 - format.bias) << 23;
    Bits number = where_more(magnitude, smallest_normal - 1, normal, subnormal);
    number = where_more(number, format.largest, constant(format.infinity), number);
    number = where_more(magnitude, kInfinityBits, constant(format.nan), number);
    const Bits negative = hn::ShiftLeftSame(hn::ShiftRight<31>(bits), format.bits - 1);
    const Bits with_sign = hn::Or(number, negative);
    // NaN has no sign here, and neither has zero in the fnuz formats.
    number = where_more(number, format.signed_from - 1,
                        where_more(number, format.last, number, with_sign), number);
    this->store_bits(number, to);
  }

 private:
  static HWY_INLINE Bits constant(std::int32_t value) {
    return hn::Set(U32(), static_cast<std::uint32_t>(value));
  }
  static HWY_INLINE float power_of_two(int exponent) {
    const std::uint32_t bits = static_cast<std::uint32_t>(127 + exponent) << 23;
    float number = 0;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }
};

#if TENDON_HARDWARE_F16
struct Half : Narrow<std::uint16_t> {
  using F16 = hn::Rebind<hwy::float16_t, F32>;

  HWY_INLINE Float load(const std::byte* from) const {
    return hn::PromoteTo(F32(), hn::LoadU(F16(), reinterpret_cast<const hwy::float16_t*>(from)));
  }
  HWY_INLINE void store(Float v, std::byte* to) const {
    const Float nan = hn::BitCast(F32(), hn::Set(U32(), kNaNBits));
    const Float one_nan = hn::IfThenElse(hn::IsNaN(v), nan, v);
    hn::StoreU(hn::DemoteTo(F16(), one_nan), F16(), reinterpret_cast<hwy::float16_t*>(to));
  }
};
#endif

}  // namespace

void small_floats(const Reduction& reduction, DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return combine_floats<float>(reduction, BFloat16{});
    case DType::f16:
    case DType::c32:
#if TENDON_HARDWARE_F16
      return combine_floats<float>(reduction, Half{});
#else
      return combine_floats<float>(reduction, Small<std::uint16_t>{{}, kF16});
#endif
    default:
      return combine_floats<float>(reduction, Small<std::uint8_t>{{}, small_float(dtype)});
  }
}

}  // namespace tendon::v0::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tendon::v0::detail {

HWY_EXPORT(small_floats);

void reduce_small_floats(const Reduction& reduction, DType dtype) {
  HWY_DYNAMIC_DISPATCH(small_floats)(reduction, dtype);
}

}  // namespace tendon::v0::detail
#endif
