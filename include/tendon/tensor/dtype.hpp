// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>
#include <tendon/core/export.hpp>

namespace tendon {
inline namespace v0 {

/// The type of one element: every DLPack type of whole bytes and one lane. The numbers travel in
/// schemas: append only. 0 is no type.
enum class DType : std::uint8_t {
  boolean = 1,  ///< one byte, 0 or 1
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  u32 = 6,
  i32 = 7,
  u64 = 8,
  i64 = 9,
  f16 = 10,   ///< IEEE 754 binary16
  bf16 = 11,  ///< the upper half of an f32
  f32 = 12,
  f64 = 13,
  c32 = 14,      ///< two f16: real, imaginary
  c64 = 15,      ///< two f32
  c128 = 16,     ///< two f64
  f8_e3m4 = 17,  ///< the names of the eight-bit floats are those of DLPack 1.1 and ml_dtypes
  f8_e4m3 = 18,
  f8_e4m3b11fnuz = 19,
  f8_e4m3fn = 20,  ///< called F8_E4M3 in safetensors files
  f8_e4m3fnuz = 21,
  f8_e5m2 = 22,
  f8_e5m2fnuz = 23,
  f8_e8m0fnu = 24,  ///< called F8_E8M0 in safetensors files
};

/// DLPack's description of a type: `code` as in DLDataTypeCode, `bits` of one lane, one lane.
struct DLPackType {
  std::uint8_t code;
  std::uint8_t bits;
  friend bool operator==(const DLPackType&, const DLPackType&) = default;
};

/// One row of the table of types.
struct DTypeInfo {
  DType dtype;
  std::uint8_t item_size_bytes;
  DLPackType dlpack;
  std::string_view name;              ///< "f32", "bool"
  std::string_view full_name;         ///< "float32": the name in NumPy, ml_dtypes and torch
  std::string_view safetensors_name;  ///< "F32"; empty where the file format has no such type
};

/// All types, by rising number.
[[nodiscard]] TENDON_API std::span<const DTypeInfo> dtype_table();
/// The type with this number on the wire; nullopt for a number that names none.
[[nodiscard]] TENDON_API std::optional<DType> dtype_from_number(std::uint8_t number);
/// Bytes of one element.
[[nodiscard]] TENDON_API std::uint64_t item_size_bytes(DType dtype);
/// "f32", "bool".
[[nodiscard]] TENDON_API std::string_view to_string(DType dtype);
/// "float32", "bool": the name in NumPy, ml_dtypes and torch.
[[nodiscard]] TENDON_API std::string_view full_name(DType dtype);
/// The type with this name, as to_string() returns it.
[[nodiscard]] TENDON_API std::optional<DType> parse_dtype(std::string_view name);
/// The name in a safetensors file ("F32"), as safetensors 0.8 has them; nullopt for c32, c128 and
/// the eight-bit floats that the format lacks.
[[nodiscard]] TENDON_API std::optional<std::string_view> safetensors_name(DType dtype);
[[nodiscard]] TENDON_API std::optional<DType> dtype_from_safetensors_name(std::string_view name);
[[nodiscard]] TENDON_API DLPackType to_dlpack_type(DType dtype);
[[nodiscard]] TENDON_API std::optional<DType> dtype_from_dlpack(DLPackType type);
TENDON_API std::ostream& operator<<(std::ostream& out, DType dtype);
/// `out << full_names` prints types by their full names from then on, also those of tensors.
TENDON_API std::ostream& full_names(std::ostream& out);

/// The DType of a C++ type. Specialise it for other types (a half, a float8) with one member
/// `static constexpr DType value`; its size must be that of the element.
template <class T>
struct DTypeOf;

template <class T>
  requires(std::integral<T> && !std::same_as<T, bool>)
struct DTypeOf<T> {
  static constexpr bool kSigned = static_cast<T>(-1) < T{};
  static constexpr DType value = sizeof(T) == 1   ? (kSigned ? DType::i8 : DType::u8)
                                 : sizeof(T) == 2 ? (kSigned ? DType::i16 : DType::u16)
                                 : sizeof(T) == 4 ? (kSigned ? DType::i32 : DType::u32)
                                                  : (kSigned ? DType::i64 : DType::u64);
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::complex<float>> {
  static constexpr DType value = DType::c64;
};
template <>
struct DTypeOf<std::complex<double>> {
  static constexpr DType value = DType::c128;
};

/// `dtype_of<float>() == DType::f32`.
template <class T>
[[nodiscard]] constexpr DType dtype_of() {
  return DTypeOf<T>::value;
}

}  // namespace v0
}  // namespace tendon
