// SPDX-License-Identifier: Apache-2.0
#include "dtypes.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <utility>

#include "errors.hpp"

namespace tendon::python {
namespace {

struct Format {
  DType dtype;
  const char* format;  // of the buffer protocol
};

// The types that the buffer protocol can express.
constexpr std::array kFormats = {
    Format{DType::boolean, "?"}, Format{DType::u8, "B"},    Format{DType::i8, "b"},
    Format{DType::u16, "H"},     Format{DType::i16, "h"},   Format{DType::u32, "I"},
    Format{DType::i32, "i"},     Format{DType::u64, "L"},   Format{DType::i64, "l"},
    Format{DType::f16, "e"},     Format{DType::f32, "f"},   Format{DType::f64, "d"},
    Format{DType::c64, "Zf"},    Format{DType::c128, "Zd"},
};
static_assert(sizeof(long) == 8, "the formats l and L are 64 bits wide on every system we run on");

constexpr std::pair<std::string_view, DType> kTypestrs[] = {
    {"b1", DType::boolean}, {"u1", DType::u8},   {"i1", DType::i8},  {"u2", DType::u16},
    {"i2", DType::i16},     {"u4", DType::u32},  {"i4", DType::i32}, {"u8", DType::u64},
    {"i8", DType::i64},     {"f2", DType::f16},  {"f4", DType::f32}, {"f8", DType::f64},
    {"c8", DType::c64},     {"c16", DType::c128}};

// Names of Tendon that NumPy reads as codes with another meaning: it counts bytes.
struct TwoReadings {
  std::string_view name;
  std::string_view of_tendon;
  std::string_view of_numpy;
};
constexpr std::array kTwoReadings = {
    TwoReadings{"u8", "uint8", "uint64"},
    TwoReadings{"i8", "int8", "int64"},
    TwoReadings{"f16", "float16", "float128"},
    TwoReadings{"c32", "complex32", "complex256"},
};

std::optional<DType> integer(Py_ssize_t item_bytes, bool is_signed) {
  switch (item_bytes) {
    case 1:
      return is_signed ? DType::i8 : DType::u8;
    case 2:
      return is_signed ? DType::i16 : DType::u16;
    case 4:
      return is_signed ? DType::i32 : DType::u32;
    case 8:
      return is_signed ? DType::i64 : DType::u64;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<DType> dtype_from_typestr(std::string_view typestr) {
  if (typestr.find_first_of("<|=") != 0) return std::nullopt;
  for (const auto& [text, dtype] : kTypestrs)
    if (typestr.substr(1) == text) return dtype;
  return std::nullopt;
}

std::string typestr_of(DType dtype) {
  for (const auto& [text, known] : kTypestrs)
    if (known == dtype) return (item_size_bytes(dtype) == 1 ? "|" : "<") + std::string(text);
  return "";
}

std::optional<DType> dtype_from_format(const char* format, Py_ssize_t item_bytes) {
  std::string_view text = format == nullptr ? "B" : format;
  // '<' is this machine's order: big-endian builds are refused.
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.remove_prefix(1);
  if (text == "Zf") return DType::c64;
  if (text == "Zd") return DType::c128;
  if (text.size() != 1) return std::nullopt;
  switch (text[0]) {
    case '?':
      return DType::boolean;
    case 'e':
      return DType::f16;
    case 'f':
      return DType::f32;
    case 'd':
      return DType::f64;
    case 'c':
      return DType::u8;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return integer(item_bytes, true);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return integer(item_bytes, false);
    default:
      return std::nullopt;
  }
}

const char* format_of(DType dtype) {
  for (const Format& each : kFormats)
    if (each.dtype == dtype) return each.format;
  return nullptr;
}

std::optional<DType> dtype_from_array_name(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  for (const DTypeInfo& row : dtype_table())
    if (row.full_name == name) return row.dtype;
  return std::nullopt;
}

DType dtype_of_object(nb::handle dtype) {
  const std::string text = nb::str(dtype).c_str();
  if (const auto known = dtype_from_array_name(text)) return *known;  // also torch.float32
  if (PyUnicode_Check(dtype.ptr())) {
    for (const TwoReadings& each : kTwoReadings) {
      if (each.name != text) continue;
      raise_type_error("the element type '" + text +
                       "' has two readings: " + std::string(each.of_tendon) +
                       ", since Tendon counts bits, and " + std::string(each.of_numpy) +
                       ", since NumPy counts bytes; write the one that is meant in full");
    }
    if (const auto known = parse_dtype(text)) return *known;
  } else if (!dtype.is_none()) {  // NumPy would read None as float64
    try {
      const nb::object known = nb::module_::import_("numpy").attr("dtype")(dtype);
      if (const auto found = dtype_from_array_name(nb::str(known).c_str())) return *found;
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
  }
  raise_type_error("there is no element type '" + text + "'; legal are " + legal_dtypes() +
                   ", and the types of NumPy, ml_dtypes and torch");
}

std::string legal_dtypes() {
  std::string names;
  for (const DTypeInfo& row : dtype_table()) {
    if (!names.empty()) names += ", ";
    names += row.full_name;
  }
  return names;
}

}  // namespace tendon::python
