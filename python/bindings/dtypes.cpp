// SPDX-License-Identifier: Apache-2.0
#include "dtypes.hpp"

#include <nanobind/stl/string.h>

#include <array>

#include "errors.hpp"

namespace tendon::python {
namespace {

struct Row {
  DType dtype;
  const char* format;           // of the buffer protocol; null where it has none
  std::string_view array_name;  // of NumPy, ml_dtypes and torch
};

constexpr std::array kTable = {
    Row{DType::boolean, "?", "bool"},
    Row{DType::u8, "B", "uint8"},
    Row{DType::i8, "b", "int8"},
    Row{DType::u16, "H", "uint16"},
    Row{DType::i16, "h", "int16"},
    Row{DType::u32, "I", "uint32"},
    Row{DType::i32, "i", "int32"},
    Row{DType::u64, "L", "uint64"},
    Row{DType::i64, "l", "int64"},
    Row{DType::f16, "e", "float16"},
    Row{DType::bf16, nullptr, "bfloat16"},
    Row{DType::f32, "f", "float32"},
    Row{DType::f64, "d", "float64"},
    Row{DType::c32, nullptr, "complex32"},
    Row{DType::c64, "Zf", "complex64"},
    Row{DType::c128, "Zd", "complex128"},
    Row{DType::f8_e3m4, nullptr, "float8_e3m4"},
    Row{DType::f8_e4m3, nullptr, "float8_e4m3"},
    Row{DType::f8_e4m3b11fnuz, nullptr, "float8_e4m3b11fnuz"},
    Row{DType::f8_e4m3fn, nullptr, "float8_e4m3fn"},
    Row{DType::f8_e4m3fnuz, nullptr, "float8_e4m3fnuz"},
    Row{DType::f8_e5m2, nullptr, "float8_e5m2"},
    Row{DType::f8_e5m2fnuz, nullptr, "float8_e5m2fnuz"},
    Row{DType::f8_e8m0fnu, nullptr, "float8_e8m0fnu"},
};
static_assert(sizeof(long) == 8, "the formats l and L are 64 bits wide on every system we run on");

const Row& row_of(DType dtype) {
  for (const Row& row : kTable)
    if (row.dtype == dtype) return row;
  return kTable.front();  // unreachable: a test compares the tables
}

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

const char* format_of(DType dtype) { return row_of(dtype).format; }
std::string_view array_name_of(DType dtype) { return row_of(dtype).array_name; }

std::optional<DType> dtype_from_array_name(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  for (const Row& row : kTable)
    if (row.array_name == name) return row.dtype;
  return std::nullopt;
}

DType dtype_of_object(nb::handle dtype) {
  const std::string text = nb::str(dtype).c_str();
  if (const auto known = parse_dtype(text)) return *known;
  if (const auto known = dtype_from_array_name(text)) return *known;  // torch.float32
  // Not for text: NumPy's codes count bytes, and its "i8" is our "i64".
  if (!PyUnicode_Check(dtype.ptr())) {
    try {
      const nb::object known = nb::module_::import_("numpy").attr("dtype")(dtype);
      if (const auto found = dtype_from_array_name(nb::str(known).c_str())) return *found;
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
  }
  raise_type_error("there is no element type '" + text + "'; legal are " + legal_dtypes() +
                   ", long names ('float32') and the types of NumPy and torch");
}

std::string legal_dtypes() {
  std::string names;
  for (const DTypeInfo& row : dtype_table()) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace tendon::python
