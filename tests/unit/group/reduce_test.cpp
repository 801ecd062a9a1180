// SPDX-License-Identifier: Apache-2.0
// Reductions: every operation, type, count and instruction set against arithmetic in its plainest
// form; then the promises of ReduceOp, one by one, in numbers.
#include "group/reduce/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/float_mode.hpp"
// The instruction sets that have an implementation of their own.
#include "group/reduce/reduce_kernels.hpp"
// clang-format off
#include <hwy/targets.h>
// clang-format on

namespace tendon::detail {
namespace {

constexpr ReduceKind kKinds[] = {ReduceKind::sum,    ReduceKind::avg,     ReduceKind::product,
                                 ReduceKind::min,    ReduceKind::max,     ReduceKind::bit_and,
                                 ReduceKind::bit_or, ReduceKind::bit_xor, ReduceKind::premul_sum};

// ---- the reference

/// A format of 16 or 8 bits, as the list of its numbers.
class Format {
 public:
  enum class Special : std::uint8_t { ieee, finite, no_negative_zero };

  Format(int bits, int mantissa_bits, int bias, Special special)
      : sign_(1u << (bits - 1)), special_(special) {
    const int codes = 1 << (bits - 1);
    for (int code = 0; code < codes; ++code) {
      const int exponent = code >> mantissa_bits;
      const int mantissa = code & ((1 << mantissa_bits) - 1);
      const bool top = exponent == (codes >> mantissa_bits) - 1;
      if (special == Special::ieee && top) break;
      if (special == Special::finite && code == codes - 1) break;
      numbers_.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                       : std::ldexp((1 << mantissa_bits) + mantissa,
                                                    exponent - bias - mantissa_bits));
    }
    const auto infinity = static_cast<std::uint32_t>(numbers_.size());
    nan_ = special == Special::ieee     ? infinity | (1u << (mantissa_bits - 1))
           : special == Special::finite ? infinity
                                        : sign_;
  }

  [[nodiscard]] float decode(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_ - 1);
    if (special_ == Special::no_negative_zero && code == sign_) return kNaN;
    float number = kNaN;
    if (magnitude < numbers_.size()) {
      number = static_cast<float>(numbers_[magnitude]);
    } else if (special_ == Special::ieee && magnitude == numbers_.size()) {
      number = std::numeric_limits<float>::infinity();
    }
    return (code & sign_) != 0 ? -number : number;
  }

  [[nodiscard]] std::uint32_t encode(float number) const {
    if (std::isnan(number)) return nan_;
    const double wanted = std::abs(static_cast<double>(number));
    // The numbers below and above it, as if the list continued.
    const auto above = std::upper_bound(numbers_.begin(), numbers_.end(), wanted);
    auto code = static_cast<std::uint32_t>(above - numbers_.begin()) - 1;
    const double low = numbers_[code];
    const double high = above != numbers_.end() ? *above : 2 * low - numbers_[code - 1];
    if (wanted - low > high - wanted || (wanted - low == high - wanted && code % 2 == 1)) ++code;
    if (code >= numbers_.size()) {
      if (special_ != Special::ieee) return nan_;
      code = static_cast<std::uint32_t>(numbers_.size());
    }
    const bool negative =
        std::signbit(number) && !(special_ == Special::no_negative_zero && code == 0);
    return negative ? code | sign_ : code;
  }

 private:
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  std::vector<double> numbers_;  // finite, not negative, by code
  std::uint32_t sign_;
  Special special_;
  std::uint32_t nan_ = 0;
};

const Format& format_of(DType dtype) {
  using enum Format::Special;
  static const std::map<DType, Format> kFormats = {
      {DType::f16, {16, 10, 15, ieee}},      {DType::c32, {16, 10, 15, ieee}},
      {DType::bf16, {16, 7, 127, ieee}},     {DType::f8_e3m4, {8, 4, 3, ieee}},
      {DType::f8_e4m3, {8, 3, 7, ieee}},     {DType::f8_e4m3b11fnuz, {8, 3, 11, no_negative_zero}},
      {DType::f8_e4m3fn, {8, 3, 7, finite}}, {DType::f8_e4m3fnuz, {8, 3, 8, no_negative_zero}},
      {DType::f8_e5m2, {8, 2, 15, ieee}},    {DType::f8_e5m2fnuz, {8, 2, 16, no_negative_zero}},
  };
  return kFormats.at(dtype);
}

template <class T>
T reference_min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}

template <class T>
T reference_max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <class T>
T reference_float(const ReduceOp& op, const std::vector<T>& values) {
  // volatile: no compiler may fuse the product and the sum.
  const auto scaled = [&](T value) -> T {
    const volatile T product = value * static_cast<T>(op.factor());
    return op.kind() == ReduceKind::premul_sum ? product : value;
  };
  T result = scaled(values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const T value = scaled(values[i]);
    if (op.kind() == ReduceKind::product) {
      result = result * value;
    } else if (op.kind() == ReduceKind::min) {
      result = reference_min(result, value);
    } else if (op.kind() == ReduceKind::max) {
      result = reference_max(result, value);
    } else {
      result = result + value;
    }
  }
  if (op.kind() == ReduceKind::avg) result = result / static_cast<T>(values.size());
  return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
}

template <class T>
T reference_integer(const ReduceOp& op, const std::vector<T>& values) {
  using Wide = std::uint64_t;
  T result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    const T value = values[i];
    switch (op.kind()) {
      case ReduceKind::sum:
        result = static_cast<T>(static_cast<Wide>(result) + static_cast<Wide>(value));
        break;
      case ReduceKind::product:
        result = static_cast<T>(static_cast<Wide>(result) * static_cast<Wide>(value));
        break;
      case ReduceKind::min:
        result = reference_min(result, value);
        break;
      case ReduceKind::max:
        result = reference_max(result, value);
        break;
      case ReduceKind::bit_and:
        result = static_cast<T>(result & value);
        break;
      case ReduceKind::bit_or:
        result = static_cast<T>(result | value);
        break;
      default:
        result = static_cast<T>(result ^ value);
        break;
    }
  }
  return result;
}

bool reference_bool(const ReduceOp& op, const std::vector<std::uint8_t>& values) {
  const auto trues =
      std::count_if(values.begin(), values.end(), [](auto byte) { return byte != 0; });
  switch (op.kind()) {
    case ReduceKind::sum:
    case ReduceKind::max:
    case ReduceKind::bit_or:
      return trues > 0;
    case ReduceKind::bit_xor:
      return trues % 2 == 1;
    default:
      return trues == static_cast<std::ptrdiff_t>(values.size());
  }
}

template <class T>
std::vector<T> gather(const std::vector<const std::byte*>& from) {
  std::vector<T> values(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) std::memcpy(&values[i], from[i], sizeof(T));
  return values;
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

/// One number of f16, bf16 or eight bits; `Code` has its width.
template <class Code>
void reference_small(const ReduceOp& op, const Format& format, std::byte* to,
                     const std::vector<const std::byte*>& from) {
  std::vector<float> values;
  for (const Code code : gather<Code>(from)) values.push_back(format.decode(code));
  put(to, static_cast<Code>(format.encode(reference_float(op, values))));
}

/// One element, or one part of a complex element.
void reference_part(const ReduceOp& op, DType dtype, std::byte* to,
                    const std::vector<const std::byte*>& from) {
  switch (dtype) {
    case DType::boolean:
      return put(to, static_cast<std::uint8_t>(reference_bool(op, gather<std::uint8_t>(from))));
    case DType::u8:
      return put(to, reference_integer(op, gather<std::uint8_t>(from)));
    case DType::i8:
      return put(to, reference_integer(op, gather<std::int8_t>(from)));
    case DType::u16:
      return put(to, reference_integer(op, gather<std::uint16_t>(from)));
    case DType::i16:
      return put(to, reference_integer(op, gather<std::int16_t>(from)));
    case DType::u32:
      return put(to, reference_integer(op, gather<std::uint32_t>(from)));
    case DType::i32:
      return put(to, reference_integer(op, gather<std::int32_t>(from)));
    case DType::u64:
      return put(to, reference_integer(op, gather<std::uint64_t>(from)));
    case DType::i64:
      return put(to, reference_integer(op, gather<std::int64_t>(from)));
    case DType::f32:
    case DType::c64:
      return put(to, reference_float(op, gather<float>(from)));
    case DType::f64:
    case DType::c128:
      return put(to, reference_float(op, gather<double>(from)));
    case DType::f16:
    case DType::bf16:
    case DType::c32:
      return reference_small<std::uint16_t>(op, format_of(dtype), to, from);
    default:
      return reference_small<std::uint8_t>(op, format_of(dtype), to, from);
  }
}

bool is_complex(DType dtype) {
  return dtype == DType::c32 || dtype == DType::c64 || dtype == DType::c128;
}

std::vector<std::byte> reference(const ReduceOp& op, DType dtype, std::size_t bytes,
                                 const std::vector<const std::byte*>& inputs) {
  const bool is_copy = inputs.size() == 1 && dtype != DType::boolean &&
                       op.kind() != ReduceKind::avg && op.kind() != ReduceKind::premul_sum;
  if (is_copy) return {inputs[0], inputs[0] + bytes};
  std::vector<std::byte> out(bytes);
  const std::size_t part = item_size_bytes(dtype) / (is_complex(dtype) ? 2 : 1);
  std::vector<const std::byte*> from(inputs.size());
  for (std::size_t at = 0; at < bytes; at += part) {
    for (std::size_t i = 0; i < inputs.size(); ++i) from[i] = inputs[i] + at;
    reference_part(op, dtype, out.data() + at, from);
  }
  return out;
}

// ---- elements

/// One third each: random bits, ordinary numbers, and numbers at the limits of formats.
template <class T>
T draw_float(std::mt19937_64& random) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  using Limits = std::numeric_limits<T>;
  static constexpr T kSpecial[] = {0,
                                   -T{0},
                                   1,
                                   -1,
                                   Limits::infinity(),
                                   -Limits::infinity(),
                                   Limits::quiet_NaN(),
                                   -Limits::quiet_NaN(),
                                   Limits::signaling_NaN(),
                                   Limits::denorm_min(),
                                   -Limits::denorm_min(),
                                   Limits::min(),
                                   Limits::max(),
                                   Limits::lowest(),
                                   Limits::epsilon()};
  switch (random() % 3) {
    case 0:
      return std::bit_cast<T>(static_cast<Bits>(random()));
    case 1:
      return std::uniform_real_distribution<T>(-4, 4)(random);
    default:
      return kSpecial[random() % std::size(kSpecial)];
  }
}

std::vector<std::byte> draw(DType dtype, std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count * item_size_bytes(dtype));
  const auto fill = [&]<class T>(auto one, T) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) put<T>(bytes.data() + at, one());
  };
  switch (dtype) {
    case DType::f32:
    case DType::c64:
      fill([&] { return draw_float<float>(random); }, float{});
      break;
    case DType::f64:
    case DType::c128:
      fill([&] { return draw_float<double>(random); }, double{});
      break;
    case DType::f16:
    case DType::bf16:
    case DType::c32:
      fill(
          [&] {
            const std::uint64_t bits = random();
            if (bits % 3 == 0) return static_cast<std::uint16_t>(bits >> 8);
            return static_cast<std::uint16_t>(format_of(dtype).encode(draw_float<float>(random)));
          },
          std::uint16_t{});
      break;
    case DType::boolean:
      fill([&] { return static_cast<std::uint8_t>(random() % 3 == 0 ? random() : 0); },
           std::uint8_t{});
      break;
    default:
      fill([&] { return static_cast<std::uint8_t>(random()); }, std::uint8_t{});
      break;
  }
  return bytes;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[(std::to_integer<unsigned>(byte) >> shift) & 15];
  }
  return text;
}

/// The first element that differs, or nothing.
std::string difference(const ReduceOp& op, DType dtype, std::span<const std::byte> got,
                       std::span<const std::byte> wanted,
                       const std::vector<const std::byte*>& inputs) {
  const std::size_t size = item_size_bytes(dtype);
  for (std::size_t at = 0; at < wanted.size(); at += size) {
    if (std::memcmp(got.data() + at, wanted.data() + at, size) == 0) continue;
    std::string text = std::string(to_string(op)) + " of element " + std::to_string(at / size) +
                       " of " + std::to_string(wanted.size() / size) + ":";
    for (const std::byte* input : inputs) text += " " + hex({input + at, size});
    return text + " gave " + hex(got.subspan(at, size)) + ", not " + hex(wanted.subspan(at, size)) +
           " (bytes as they lie)";
  }
  return {};
}

// ---- every instruction set

struct Case {
  std::int64_t target;
  DType dtype;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    for (const DTypeInfo& info : dtype_table())
      if (info.dtype != DType::f8_e8m0fnu) all.push_back({target, info.dtype});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(hwy::TargetName(info.param.target)) + "_" +
         std::string(to_string(info.param.dtype));
}

class ReduceOnTarget : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam().target); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(ReduceOnTarget, is_bit_for_bit_the_plain_arithmetic) {
  const DType dtype = GetParam().dtype;
  const std::uint64_t seed = 20240611 + static_cast<std::uint64_t>(dtype);
  std::mt19937_64 random(seed);
  constexpr std::byte kGuard{0xa5};
  int pairs = 0;
  for (const std::size_t count : {0, 1, 2, 3, 7, 64, 1000, 4099}) {
    const std::size_t bytes = count * item_size_bytes(dtype);
    for (const std::size_t inputs_count : {1, 2, 3, 4, 5, 8}) {
      // Each input has a different distance from an aligned address, and ends where its memory
      // ends.
      std::vector<std::vector<std::byte>> memory;
      std::vector<const std::byte*> inputs;
      for (std::size_t i = 0; i < inputs_count; ++i) {
        memory.emplace_back(i + 1);
        const std::vector<std::byte> elements = draw(dtype, count, random);
        memory.back().insert(memory.back().end(), elements.begin(), elements.end());
        memory.back().shrink_to_fit();
      }
      for (std::size_t i = 0; i < inputs_count; ++i) inputs.push_back(memory[i].data() + i + 1);
      for (const ReduceKind kind : kKinds) {
        const ReduceOp op(kind, 0.3);
        if (!check_reduce(op, dtype, "test")) continue;
        ++pairs;
        const std::vector<std::byte> wanted = [&] {
          const DefaultFloatMode mode;
          return reference(op, dtype, bytes, inputs);
        }();
        std::vector<std::byte> out(bytes + 14, kGuard);
        const MutableBytes between(out.data() + 7, bytes);
        reduce(op, dtype, between, inputs);
        ASSERT_EQ(difference(op, dtype, between, wanted, inputs), "") << "seed " << seed;
        ASSERT_TRUE(
            std::all_of(out.begin(), out.begin() + 7, [=](auto b) { return b == kGuard; }) &&
            std::all_of(out.end() - 7, out.end(), [=](auto b) { return b == kGuard; }))
            << "wrote outside: " << to_string(op) << ", " << count << " elements";
        for (std::size_t i = 0; i < inputs_count; ++i) {
          std::vector<std::byte> in_place(inputs[i], inputs[i] + bytes);
          std::vector<const std::byte*> with_it = inputs;
          with_it[i] = in_place.data();
          reduce(op, dtype, in_place, with_it);
          ASSERT_EQ(difference(op, dtype, in_place, wanted, inputs), "")
              << "in place of input " << i << ", seed " << seed;
        }
      }
    }
  }
  EXPECT_GE(pairs, 48 * 3);
}

INSTANTIATE_TEST_SUITE_P(All, ReduceOnTarget, testing::ValuesIn(cases()), name_of);

// ---- the promises, in numbers

template <class T>
std::vector<T> reduced(const ReduceOp& op, DType dtype, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> out(inputs[0].size());
  std::vector<const std::byte*> addresses;
  addresses.reserve(inputs.size());
  for (const std::vector<T>& input : inputs)
    addresses.push_back(reinterpret_cast<const std::byte*>(input.data()));
  reduce(op, dtype, std::as_writable_bytes(std::span(out)), addresses);
  return out;
}

/// The result for one element from each member.
template <class T>
T reduced_one(const ReduceOp& op, DType dtype, std::vector<T> elements) {
  std::vector<std::vector<T>> inputs;
  for (const T element : elements) inputs.push_back({element});
  return reduced(op, dtype, inputs)[0];
}

using Codes8 = std::vector<std::uint8_t>;
using Codes16 = std::vector<std::uint16_t>;

TEST(Reduce, adds_in_the_order_of_ranks) {
  // 1e8 swallows 1: the result shows the order.
  EXPECT_EQ(reduced_one<float>(ReduceOp::sum, DType::f32, {1e8f, 1, -1e8f, 1}), 1);
  EXPECT_EQ(reduced_one<float>(ReduceOp::sum, DType::f32, {1e8f, -1e8f, 1, 1}), 2);
}

TEST(Reduce, divides_the_sum_once) {
  // A third of each would sum to 0.99999994.
  EXPECT_EQ(reduced_one<float>(ReduceOp::avg, DType::f32, {1, 1, 1}), 1);
  EXPECT_EQ(reduced_one<double>(ReduceOp::avg, DType::f64, {1, 2}), 1.5);
  EXPECT_EQ(reduced_one<float>(ReduceOp::avg, DType::f32, {5}), 5);
}

TEST(Reduce, rounds_the_product_before_the_sum) {
  // x * x has 48 bits; fused, the difference to its own rounding would show.
  const float x = 1 + std::numeric_limits<float>::epsilon();
  const float square = x * x;
  EXPECT_EQ(reduced_one<float>(ReduceOp::premul_sum(x), DType::f32, {-square / x, x}),
            static_cast<float>(-square / x * x) + square);
  EXPECT_EQ(reduced_one<float>(ReduceOp::premul_sum(0.5), DType::f32, {3}), 1.5f);
}

TEST(Reduce, rounds_small_floats_once_at_the_end) {
  // bf16 has 8 bits: 256 + 1 is a tie that rounds to 256, twice; in f32 the sum is 258.
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::bf16, {0x4380, 0x3f80, 0x3f80}),
            0x4381);
  // f16 has 11: 2048 + 1 + 1.
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::f16, {0x6800, 0x3c00, 0x3c00}),
            0x6801);
  // f8_e4m3fn has 4: 16 + 1 + 1 = 18.
  EXPECT_EQ(reduced_one<std::uint8_t>(ReduceOp::sum, DType::f8_e4m3fn, {0x58, 0x38, 0x38}), 0x59);
}

TEST(Reduce, rounds_ties_to_even) {
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::bf16, {0x4380, 0x3f80}), 0x4380);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::bf16, {0x4381, 0x3f80}), 0x4382);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::f16, {0x6800, 0x3c00}), 0x6800);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::f16, {0x6801, 0x3c00}), 0x6802);
  // Half of the smallest denormal, and three halves of it.
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::premul_sum(0.5), DType::f16, {0x0001}), 0x0000);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::premul_sum(0.5), DType::f16, {0x0003}), 0x0002);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::premul_sum(0.5), DType::f16, {0x8001}), 0x8000);
}

TEST(Reduce, overflows_as_the_format_can) {
  const auto twice = [](DType dtype, std::uint8_t code) {
    return reduced_one<std::uint8_t>(ReduceOp::sum, dtype, {code, code});
  };
  EXPECT_EQ(twice(DType::f8_e5m2, 0x7b), 0x7c);  // infinity
  EXPECT_EQ(twice(DType::f8_e5m2, 0xfb), 0xfc);
  EXPECT_EQ(twice(DType::f8_e4m3, 0x77), 0x78);
  EXPECT_EQ(twice(DType::f8_e3m4, 0x6f), 0x70);
  EXPECT_EQ(twice(DType::f8_e4m3fn, 0x7e), 0x7f);  // NaN
  EXPECT_EQ(twice(DType::f8_e4m3fn, 0xfe), 0x7f);
  EXPECT_EQ(twice(DType::f8_e4m3fnuz, 0x7f), 0x80);
  EXPECT_EQ(twice(DType::f8_e4m3b11fnuz, 0xff), 0x80);
  EXPECT_EQ(twice(DType::f8_e5m2fnuz, 0x7f), 0x80);
  // 448 + 16 is halfway to 480, which does not exist, and rounds down; 448 + 18 does not.
  EXPECT_EQ(reduced_one<std::uint8_t>(ReduceOp::sum, DType::f8_e4m3fn, {0x7e, 0x58}), 0x7e);
  EXPECT_EQ(reduced_one<std::uint8_t>(ReduceOp::sum, DType::f8_e4m3fn, {0x7e, 0x59}), 0x7f);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::f16, {0x7bff, 0x7bff}), 0x7c00);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::sum, DType::bf16, {0xff7f, 0xff7f}), 0xff80);
}

TEST(Reduce, has_one_nan_wherever_it_comes_from) {
  const auto bits = [](float number) { return std::bit_cast<std::uint32_t>(number); };
  const float infinity = std::numeric_limits<float>::infinity();
  const float mine = std::bit_cast<float>(0xffc12345u);
  const float yours = std::bit_cast<float>(0x7f812345u);
  for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min,
                             ReduceOp::max, ReduceOp::premul_sum(2)}) {
    for (const std::vector<float>& elements :
         {std::vector<float>{mine, 1}, {1, mine}, {mine, yours}, {yours, mine, 0}, {0, 1, mine}}) {
      EXPECT_EQ(bits(reduced_one<float>(op, DType::f32, elements)), 0x7fc00000u) << to_string(op);
    }
  }
  EXPECT_EQ(bits(reduced_one<float>(ReduceOp::sum, DType::f32, {infinity, -infinity})),
            0x7fc00000u);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::max, DType::f16, {0xfe01, 0}), 0x7e00);
  EXPECT_EQ(reduced_one<std::uint16_t>(ReduceOp::min, DType::bf16, {0, 0xffff}), 0x7fc0);
  EXPECT_EQ(reduced_one<std::uint8_t>(ReduceOp::max, DType::f8_e4m3fn, {0xff, 0}), 0x7f);
  EXPECT_EQ(reduced_one<std::uint8_t>(ReduceOp::max, DType::f8_e5m2, {0xff, 0}), 0x7e);
  EXPECT_EQ(reduced_one<std::uint8_t>(ReduceOp::min, DType::f8_e4m3fnuz, {0x80, 0}), 0x80);
}

TEST(Reduce, orders_the_two_zeros) {
  const auto is_negative = [](const ReduceOp& op, std::vector<float> elements) {
    return std::signbit(reduced_one<float>(op, DType::f32, std::move(elements)));
  };
  EXPECT_TRUE(is_negative(ReduceOp::min, {0.0f, -0.0f}));
  EXPECT_TRUE(is_negative(ReduceOp::min, {-0.0f, 0.0f}));
  EXPECT_FALSE(is_negative(ReduceOp::max, {0.0f, -0.0f}));
  EXPECT_FALSE(is_negative(ReduceOp::max, {-0.0f, 0.0f}));
  EXPECT_TRUE(is_negative(ReduceOp::sum, {-0.0f, -0.0f}));
}

TEST(Reduce, wraps_integers) {
  EXPECT_EQ(reduced_one<std::int8_t>(ReduceOp::sum, DType::i8, {127, 1}), -128);
  EXPECT_EQ(reduced_one<std::int8_t>(ReduceOp::product, DType::i8, {-128, -1}), -128);
  EXPECT_EQ(reduced_one<std::int64_t>(ReduceOp::product, DType::i64, {1ll << 62, 2}),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reduced_one<std::int64_t>(ReduceOp::min, DType::i64, {1, -1}), -1);
  EXPECT_EQ(reduced_one<std::uint64_t>(ReduceOp::max, DType::u64, {1, ~0ull}), ~0ull);
}

TEST(Reduce, makes_bools_of_any_byte) {
  const std::vector<Codes8> inputs = {{0, 0, 2, 4, 255}, {0, 1, 0, 3, 255}};
  EXPECT_EQ(reduced(ReduceOp::sum, DType::boolean, inputs), (Codes8{0, 1, 1, 1, 1}));
  EXPECT_EQ(reduced(ReduceOp::max, DType::boolean, inputs), (Codes8{0, 1, 1, 1, 1}));
  EXPECT_EQ(reduced(ReduceOp::product, DType::boolean, inputs), (Codes8{0, 0, 0, 1, 1}));
  EXPECT_EQ(reduced(ReduceOp::min, DType::boolean, inputs), (Codes8{0, 0, 0, 1, 1}));
  EXPECT_EQ(reduced(ReduceOp::bit_and, DType::boolean, inputs), (Codes8{0, 0, 0, 1, 1}));
  EXPECT_EQ(reduced(ReduceOp::bit_xor, DType::boolean, inputs), (Codes8{0, 1, 1, 0, 0}));
  EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::sum, DType::boolean, {{0, 7}}), (Codes8{0, 1}));
}

TEST(Reduce, leaves_a_group_of_one_alone) {
  const Codes16 with_nans = {0x7c01, 0xffff, 0x8000, 0x0001};
  EXPECT_EQ(reduced<std::uint16_t>(ReduceOp::sum, DType::f16, {with_nans}), with_nans);
}

TEST(CheckReduce, knows_the_table) {
  // Rows of ReduceOp's table: integers, bool, reals, complex numbers, scales.
  const std::map<std::string_view, std::string_view> kLegal = {
      {"sum", "ibrc"},   {"avg", "rc"},    {"product", "ibr"}, {"min", "ibr"},      {"max", "ibr"},
      {"bit_and", "ib"}, {"bit_or", "ib"}, {"bit_xor", "ib"},  {"premul_sum", "rc"}};
  for (const DTypeInfo& info : dtype_table()) {
    const char letter = info.dtype == DType::boolean                       ? 'b'
                        : info.dtype == DType::f8_e8m0fnu                  ? 's'
                        : is_complex(info.dtype)                           ? 'c'
                        : info.name[0] == 'f' || info.dtype == DType::bf16 ? 'r'
                                                                           : 'i';
    for (const ReduceKind kind : kKinds) {
      const bool legal = kLegal.at(to_string(kind)).find(letter) != std::string_view::npos;
      EXPECT_EQ(check_reduce(ReduceOp(kind), info.dtype, "test").has_value(), legal)
          << to_string(kind) << " of " << info.name;
    }
  }
}

TEST(CheckReduce, names_what_is_legal) {
  const auto refused = check_reduce(ReduceOp::avg, DType::i32, "group.all_reduce");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_dtype);
  EXPECT_EQ(refused.error().where, "group.all_reduce");
  EXPECT_EQ(refused.error().detail,
            "avg is not defined for elements of type i32; it is for f16, bf16, f32, f64, c32, c64, "
            "c128, f8_e3m4, f8_e4m3, f8_e4m3b11fnuz, f8_e4m3fn, f8_e4m3fnuz, f8_e5m2, f8_e5m2fnuz");
  const auto scales = check_reduce(ReduceOp::max, DType::f8_e8m0fnu, "group.all_reduce");
  ASSERT_FALSE(scales);
  EXPECT_NE(scales.error().detail.find("scales"), std::string::npos);
}

TEST(ReduceOpTest, has_names_and_numbers) {
  EXPECT_EQ(static_cast<int>(ReduceKind::sum), 1);  // the numbers are sent to peers
  EXPECT_EQ(static_cast<int>(ReduceKind::premul_sum), 9);
  EXPECT_EQ(to_string(ReduceOp::bit_xor), "bit_xor");
}

TEST(ReduceOpTest, compares_kind_and_factor) {
  EXPECT_EQ(ReduceOp::premul_sum(0.5), ReduceOp(ReduceKind::premul_sum, 0.5));
  EXPECT_NE(ReduceOp::premul_sum(0.5), ReduceOp::premul_sum(2));
  EXPECT_NE(ReduceOp::sum, ReduceOp::avg);
  EXPECT_EQ(ReduceOp(ReduceKind::sum, 3), ReduceOp::sum);  // which has no factor
  EXPECT_EQ(ReduceOp::premul_sum(0.5).factor(), 0.5);
}

}  // namespace
}  // namespace tendon::detail
