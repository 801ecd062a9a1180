// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// The kind of a ReduceOp. The numbers travel between members: append only. 0 is none.
enum class ReduceKind : std::uint8_t {
  sum = 1,
  avg = 2,
  product = 3,
  min = 4,
  max = 5,
  bit_and = 6,
  bit_or = 7,
  bit_xor = 8,
  premul_sum = 9,
};
TENDON_WORDS(ReduceKind, sum, avg, product, min, max, bit_and, bit_or, bit_xor, premul_sum);

[[deprecated("parse_word<ReduceKind>()")]] [[nodiscard]] constexpr std::optional<ReduceKind>
parse_reduce_kind(std::string_view name) {
  return parse_word<ReduceKind>(name);
}
[[deprecated("enumerator_from<ReduceKind>()")]] [[nodiscard]] constexpr std::optional<ReduceKind>
reduce_kind_from_number(std::uint8_t number) {
  return enumerator_from<ReduceKind>(number);
}

/// How a collective makes one element out of one element of each member.
///
/// Example:
///   Tensor x = Tensor::of<float>({2}, {1, 2});
///   group.all_reduce(x, ReduceOp::sum, 10s).value();
///   group.all_reduce(x, ReduceOp::premul_sum(0.5), 10s).value();
///   if (auto kind = parse_reduce_kind("max")) group.all_reduce(x, ReduceOp(*kind), 10s).value();
///   std::cout << to_string(ReduceOp::bit_xor) << '\n';
///
///                  integers   bool   f16 bf16 f32 f64, eight-bit floats   c32 c64 c128
///     sum          wraps      or     yes                                  yes
///     avg          -          -      yes                                  yes
///     product      wraps      and    yes                                  -
///     min          yes        and    yes                                  -
///     max          yes        or     yes                                  -
///     bit_*        yes        yes    -                                    -
///     premul_sum   -          -      yes                                  yes
///
/// f8_e8m0fnu holds scales, powers of two without zero and sign, and has none of these operations.
///
/// **Order.** On one host elements are combined in the order of ranks, ((r0 + r1) + r2) + r3, each
/// step rounded by itself, never fused. Between hosts the algorithm decides the order, and each hop
/// rounds to the tensor's dtype (docs/collectives.md). Every member gets the same bits, on any
/// processor, as long as the floating-point environment is the usual one (to nearest, denormals
/// kept).
///
/// **Floats.** f16, bf16 and the eight-bit floats are combined in f32 and rounded once, at the end,
/// to the nearest, ties to even. A value that is too large becomes infinity, or NaN in the formats
/// without one (f8_e4m3fn and the *fnuz types), as ml_dtypes does. avg divides the sum by the
/// number of members, once. premul_sum multiplies each element by the factor, rounds, and then
/// sums; the factor is first rounded to the type in which elements are combined.
///
/// **NaN and zero.** A NaN of any member makes the result NaN, in min and max too. Every NaN in a
/// result is the same one, quiet and positive (0x80 in the *fnuz types). For min and max -0 is less
/// than +0. (IEEE 754-2019 calls these two `minimum` and `maximum`.)
///
/// **Integers** wrap as two's complement does. **bool**: any byte but 0 is true; the result is 0 or
/// 1. **Complex** numbers are summed, averaged and multiplied by the real factor part by part.
///
/// A group of one returns its input, bit for bit, except that avg, premul_sum and bool do as above.
///
/// Owns:    a kind and a number.
/// Threads: a value.
/// Errors:  none; collectives return unsupported_dtype for a pair that the table lacks.
/// Blocks:  never.
/// Cost:    none.
class TENDON_API ReduceOp {
 public:
  // NOLINTBEGIN(readability-identifier-naming): operations, written like premul_sum().
  static const ReduceOp sum;
  static const ReduceOp avg;
  static const ReduceOp product;
  static const ReduceOp min;
  static const ReduceOp max;
  static const ReduceOp bit_and;
  static const ReduceOp bit_or;
  static const ReduceOp bit_xor;
  // NOLINTEND(readability-identifier-naming)
  /// `sum` of `factor` times each element. Any factor is legal, NaN included.
  [[nodiscard]] static constexpr ReduceOp premul_sum(double factor) {
    return ReduceOp(ReduceKind::premul_sum, factor);
  }

  /// Makes one from a kind that was read or parsed; `factor` counts for premul_sum only.
  explicit constexpr ReduceOp(ReduceKind kind, double factor = 1)
      : kind_(kind), factor_(kind == ReduceKind::premul_sum ? factor : 1) {}

  [[nodiscard]] constexpr ReduceKind kind() const noexcept { return kind_; }
  /// The factor of premul_sum; 1 for the others.
  [[nodiscard]] constexpr double factor() const noexcept { return factor_; }
  friend constexpr bool operator==(const ReduceOp&, const ReduceOp&) = default;

 private:
  ReduceKind kind_;
  double factor_;
};

inline constexpr ReduceOp ReduceOp::sum{ReduceKind::sum};
inline constexpr ReduceOp ReduceOp::avg{ReduceKind::avg};
inline constexpr ReduceOp ReduceOp::product{ReduceKind::product};
inline constexpr ReduceOp ReduceOp::min{ReduceKind::min};
inline constexpr ReduceOp ReduceOp::max{ReduceKind::max};
inline constexpr ReduceOp ReduceOp::bit_and{ReduceKind::bit_and};
inline constexpr ReduceOp ReduceOp::bit_or{ReduceKind::bit_or};
inline constexpr ReduceOp ReduceOp::bit_xor{ReduceKind::bit_xor};

/// The name of its kind.
[[nodiscard]] inline std::string_view to_string(const ReduceOp& op) { return to_string(op.kind()); }

}  // namespace v0
}  // namespace tendon
