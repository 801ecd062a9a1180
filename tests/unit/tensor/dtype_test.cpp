// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <complex>
#include <set>
#include <sstream>
#include <string>
#include <tendon/memory/device.hpp>
#include <tendon/tensor/dtype.hpp>
#include <utility>

namespace tendon {
namespace {

// Schemas contain the numbers.
TEST(DType, NumbersThatWereGivenStay) {
  const std::pair<DType, int> kNumbers[] = {
      {DType::boolean, 1},
      {DType::u8, 2},
      {DType::i8, 3},
      {DType::u16, 4},
      {DType::i16, 5},
      {DType::u32, 6},
      {DType::i32, 7},
      {DType::u64, 8},
      {DType::i64, 9},
      {DType::f16, 10},
      {DType::bf16, 11},
      {DType::f32, 12},
      {DType::f64, 13},
      {DType::c32, 14},
      {DType::c64, 15},
      {DType::c128, 16},
      {DType::f8_e3m4, 17},
      {DType::f8_e4m3, 18},
      {DType::f8_e4m3b11fnuz, 19},
      {DType::f8_e4m3fn, 20},
      {DType::f8_e4m3fnuz, 21},
      {DType::f8_e5m2, 22},
      {DType::f8_e5m2fnuz, 23},
      {DType::f8_e8m0fnu, 24},
  };
  EXPECT_EQ(std::size(kNumbers), dtype_table().size());
  for (const auto& [dtype, number] : kNumbers) {
    EXPECT_EQ(static_cast<int>(dtype), number);
    EXPECT_EQ(dtype_from_number(static_cast<std::uint8_t>(number)), dtype);
  }
  EXPECT_FALSE(dtype_from_number(0));
  EXPECT_FALSE(dtype_from_number(25));
  EXPECT_FALSE(dtype_from_number(255));
}

TEST(DType, EveryNameAndDescriptionLeadsBack) {
  std::set<std::string_view> names;
  for (const DTypeInfo& row : dtype_table()) {
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_EQ(parse_dtype(to_string(row.dtype)), row.dtype);
    EXPECT_EQ(dtype_from_dlpack(to_dlpack_type(row.dtype)), row.dtype);
    EXPECT_EQ(item_size_bytes(row.dtype) * 8, to_dlpack_type(row.dtype).bits);
    if (const auto name = safetensors_name(row.dtype)) {
      EXPECT_EQ(dtype_from_safetensors_name(*name), row.dtype);
    }
    std::ostringstream out;
    out << row.dtype;
    EXPECT_EQ(out.str(), row.name);
  }
  EXPECT_FALSE(parse_dtype(""));
  EXPECT_FALSE(parse_dtype("F32"));
  EXPECT_FALSE(dtype_from_safetensors_name(""));
  EXPECT_FALSE(dtype_from_safetensors_name("f32"));
  EXPECT_FALSE(dtype_from_dlpack({2, 24}));
  EXPECT_FALSE(dtype_from_dlpack({15, 6})) << "parts of bytes";
  EXPECT_FALSE(dtype_from_dlpack({17, 4})) << "parts of bytes";
}

TEST(DType, SafetensorsHasTheseTypes) {
  const std::pair<DType, std::string_view> kNames[] = {
      {DType::boolean, "BOOL"},
      {DType::u8, "U8"},
      {DType::i8, "I8"},
      {DType::f8_e5m2, "F8_E5M2"},
      {DType::f8_e4m3fn, "F8_E4M3"},
      {DType::f8_e8m0fnu, "F8_E8M0"},
      {DType::f8_e4m3fnuz, "F8_E4M3FNUZ"},
      {DType::f8_e5m2fnuz, "F8_E5M2FNUZ"},
      {DType::i16, "I16"},
      {DType::u16, "U16"},
      {DType::f16, "F16"},
      {DType::bf16, "BF16"},
      {DType::i32, "I32"},
      {DType::u32, "U32"},
      {DType::f32, "F32"},
      {DType::c64, "C64"},
      {DType::f64, "F64"},
      {DType::i64, "I64"},
      {DType::u64, "U64"},
  };
  std::size_t named = 0;
  for (const DTypeInfo& row : dtype_table()) named += safetensors_name(row.dtype) ? 1 : 0;
  EXPECT_EQ(named, std::size(kNames));
  for (const auto& [dtype, name] : kNames) EXPECT_EQ(safetensors_name(dtype), name);
}

TEST(DType, CppTypesHaveOne) {
  static_assert(dtype_of<float>() == DType::f32);
  static_assert(dtype_of<bool>() == DType::boolean);
  static_assert(dtype_of<std::uint8_t>() == DType::u8);
  static_assert(dtype_of<signed char>() == DType::i8);
  static_assert(dtype_of<short>() == DType::i16);
  static_assert(dtype_of<long>() == DType::i64);
  static_assert(dtype_of<long long>() == DType::i64);
  static_assert(dtype_of<unsigned long long>() == DType::u64);
  static_assert(dtype_of<std::complex<float>>() == DType::c64);
  static_assert(dtype_of<std::complex<double>>() == DType::c128);
}

TEST(Device, TextLeadsBack) {
  EXPECT_EQ(to_string(cpu()), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 1}), "cuda:1");
  for (const Device device : {cpu(), Device{DeviceKind::cuda, 0}, Device{DeviceKind::rocm, 7}})
    EXPECT_EQ(parse_device(to_string(device)), device);
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceKind::cuda, 0}));
  EXPECT_EQ(parse_device("cpu:0"), cpu());
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda:99999999999"})
    EXPECT_FALSE(parse_device(text)) << text;
}

TEST(Device, KindsAreDLPacks) {
  EXPECT_EQ(device_kind_from_dlpack(1), DeviceKind::cpu);
  EXPECT_EQ(device_kind_from_dlpack(2), DeviceKind::cuda);
  EXPECT_EQ(device_kind_from_dlpack(16), DeviceKind::hexagon);
  for (const int number : {0, 5, 6, 19, -1, 257}) EXPECT_FALSE(device_kind_from_dlpack(number));
}

}  // namespace
}  // namespace tendon
