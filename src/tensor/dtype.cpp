// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ios>
#include <ostream>
#include <tendon/tensor/dtype.hpp>

namespace tendon::v0 {
namespace {

// DLDataTypeCode of DLPack 1.1.
constexpr std::uint8_t kInt = 0;
constexpr std::uint8_t kUInt = 1;
constexpr std::uint8_t kFloat = 2;
constexpr std::uint8_t kBfloat = 4;
constexpr std::uint8_t kComplex = 5;
constexpr std::uint8_t kBool = 6;

// The names in files are those of safetensors 0.8.
constexpr std::array kTable = {
    DTypeInfo{DType::boolean, 1, {kBool, 8}, "bool", "bool", "BOOL"},
    DTypeInfo{DType::u8, 1, {kUInt, 8}, "u8", "uint8", "U8"},
    DTypeInfo{DType::i8, 1, {kInt, 8}, "i8", "int8", "I8"},
    DTypeInfo{DType::u16, 2, {kUInt, 16}, "u16", "uint16", "U16"},
    DTypeInfo{DType::i16, 2, {kInt, 16}, "i16", "int16", "I16"},
    DTypeInfo{DType::u32, 4, {kUInt, 32}, "u32", "uint32", "U32"},
    DTypeInfo{DType::i32, 4, {kInt, 32}, "i32", "int32", "I32"},
    DTypeInfo{DType::u64, 8, {kUInt, 64}, "u64", "uint64", "U64"},
    DTypeInfo{DType::i64, 8, {kInt, 64}, "i64", "int64", "I64"},
    DTypeInfo{DType::f16, 2, {kFloat, 16}, "f16", "float16", "F16"},
    DTypeInfo{DType::bf16, 2, {kBfloat, 16}, "bf16", "bfloat16", "BF16"},
    DTypeInfo{DType::f32, 4, {kFloat, 32}, "f32", "float32", "F32"},
    DTypeInfo{DType::f64, 8, {kFloat, 64}, "f64", "float64", "F64"},
    DTypeInfo{DType::c32, 4, {kComplex, 32}, "c32", "complex32", ""},
    DTypeInfo{DType::c64, 8, {kComplex, 64}, "c64", "complex64", "C64"},
    DTypeInfo{DType::c128, 16, {kComplex, 128}, "c128", "complex128", ""},
    DTypeInfo{DType::f8_e3m4, 1, {7, 8}, "f8_e3m4", "float8_e3m4", ""},
    DTypeInfo{DType::f8_e4m3, 1, {8, 8}, "f8_e4m3", "float8_e4m3", ""},
    DTypeInfo{DType::f8_e4m3b11fnuz, 1, {9, 8}, "f8_e4m3b11fnuz", "float8_e4m3b11fnuz", ""},
    DTypeInfo{DType::f8_e4m3fn, 1, {10, 8}, "f8_e4m3fn", "float8_e4m3fn", "F8_E4M3"},
    DTypeInfo{DType::f8_e4m3fnuz, 1, {11, 8}, "f8_e4m3fnuz", "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    DTypeInfo{DType::f8_e5m2, 1, {12, 8}, "f8_e5m2", "float8_e5m2", "F8_E5M2"},
    DTypeInfo{DType::f8_e5m2fnuz, 1, {13, 8}, "f8_e5m2fnuz", "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    DTypeInfo{DType::f8_e8m0fnu, 1, {14, 8}, "f8_e8m0fnu", "float8_e8m0fnu", "F8_E8M0"},
};

constexpr bool rows_stand_at_their_number() {
  for (std::size_t i = 0; i < kTable.size(); ++i)
    if (static_cast<std::size_t>(kTable[i].dtype) != i + 1) return false;
  return true;
}
static_assert(rows_stand_at_their_number(), "row i describes the type with number i + 1");

const DTypeInfo& row(DType dtype) { return kTable[static_cast<std::size_t>(dtype) - 1]; }

// The index where a stream keeps its full_names flag.
int full_names_index() {
  static const int kIndex = std::ios_base::xalloc();
  return kIndex;
}

}  // namespace

std::span<const DTypeInfo> dtype_table() { return kTable; }

std::optional<DType> dtype_from_number(std::uint8_t number) {
  if (number == 0 || number > kTable.size()) return std::nullopt;
  return static_cast<DType>(number);
}

std::uint64_t item_size_bytes(DType dtype) { return row(dtype).item_size_bytes; }
std::string_view to_string(DType dtype) { return row(dtype).name; }
std::string_view full_name(DType dtype) { return row(dtype).full_name; }
DLPackType to_dlpack_type(DType dtype) { return row(dtype).dlpack; }

std::optional<std::string_view> safetensors_name(DType dtype) {
  const std::string_view name = row(dtype).safetensors_name;
  return name.empty() ? std::nullopt : std::optional(name);
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& info : kTable)
    if (info.name == name) return info.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  for (const DTypeInfo& info : kTable)
    if (!name.empty() && info.safetensors_name == name) return info.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_dlpack(DLPackType type) {
  for (const DTypeInfo& info : kTable)
    if (info.dlpack == type) return info.dtype;
  return std::nullopt;
}

std::ostream& full_names(std::ostream& out) {
  out.iword(full_names_index()) = 1;
  return out;
}

std::ostream& operator<<(std::ostream& out, DType dtype) {
  const bool in_full = out.iword(full_names_index()) != 0;
  return out << (in_full ? full_name(dtype) : to_string(dtype));
}

}  // namespace tendon::v0
