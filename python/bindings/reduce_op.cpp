// SPDX-License-Identifier: Apache-2.0
#include "reduce_op.hpp"

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings.hpp"
#include "errors.hpp"

namespace tendon::python {
namespace {

constexpr const char* kReduceOpDoc =
    "How a collective makes one element out of one of each member.\n\n"
    "Where one is wanted its name will do: 'sum', 'avg', 'product', 'min', 'max',\n"
    "'bit_and', 'bit_or', 'bit_xor'. Elements are combined in the order of ranks,\n"
    "and every member gets the same bits. f16, bf16 and eight-bit floats are\n"
    "combined in f32 and rounded once. avg and premul_sum are for floats and\n"
    "complex numbers, bit_* for integers and bool.";

std::string legal_ops() {
  const std::string words = legal_words<ReduceKind>("'");
  return words.substr(0, words.rfind(',')) + " and tendon.ReduceOp.premul_sum(factor)";
}

std::string text_of(const ReduceOp& op) {
  const std::string name(to_string(op));
  if (op.kind() != ReduceKind::premul_sum) return "tendon.ReduceOp." + name;
  return "tendon.ReduceOp.premul_sum(" + nb::cast<std::string>(nb::repr(nb::float_(op.factor()))) +
         ")";
}

}  // namespace

ReduceOp reduce_op_from(nb::handle object) {
  if (nb::isinstance<ReduceOp>(object)) return nb::cast<const ReduceOp&>(object);
  if (!PyUnicode_Check(object.ptr()))
    raise_type_error("op is a " + quoted_type(object) + "; legal are " + legal_ops());
  const auto word = nb::cast<std::string>(object);
  const auto kind = parse_word<ReduceKind>(word);
  if (!kind || *kind == ReduceKind::premul_sum)
    raise_value_error("op is '" + word + "'; legal are " + legal_ops());
  return ReduceOp(*kind);
}

void bind_reduce_op(nb::module_& module) {
  nb::class_<ReduceOp> type(module, "ReduceOp", kReduceOpDoc);
  type.def_static("premul_sum", &ReduceOp::premul_sum, nb::arg("factor"),
                  "The sum of factor times each element.")
      .def_prop_ro(
          "name", [](const ReduceOp& self) { return std::string(to_string(self)); },
          "Such as 'sum'.")
      .def_prop_ro("factor", &ReduceOp::factor, "Of premul_sum; 1.0 for the others.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const ReduceOp& self) {
             return nb::hash(nb::make_tuple(static_cast<int>(self.kind()), self.factor()));
           })
      .def("__repr__", text_of);
  // Not attributes of the class: a class that holds its own instances would outlive the
  // interpreter.
  for (const auto& [kind, word] : kWords<ReduceKind>)
    if (kind != ReduceKind::premul_sum)
      type.def_prop_ro_static(std::string(word).c_str(),
                              [op = ReduceOp(kind)](nb::handle) { return op; });
}

}  // namespace tendon::python
