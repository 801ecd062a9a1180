// SPDX-License-Identifier: Apache-2.0
#include "loan.hpp"

#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

constexpr const char* kLoanDoc =
    "Arrays in memory that the peer can read: fill them, then send the loan, and\n"
    "nothing is copied.\n\n"
    "loan['image'][:] = frame; loan['step'] = 7; pipe.send(loan)\n\n"
    "After a successful send it is empty, and its memory is the receiver's: do\n"
    "not touch arrays that were taken from it before.";

/// Its memory is the receiver's: there is nothing left to read or to fill.
const TensorDict& unsent(const LoanHandle& self, const char* where) {
  if (self.loan->empty()) {
    throw to_exception({ErrorCode::invalid_argument, where,
                        "the loan was sent, and its memory is the receiver's since; take a new one "
                        "with pipe.loan or publisher.loan"});
  }
  return self.loan->dict();
}

void set_at(LoanHandle& self, const std::string& path, nb::handle value) {
  if (PyDict_Check(value.ptr())) {
    for (auto [key, inner] : nb::borrow<nb::dict>(value))
      set_at(self, path + "/" + path_of(key), inner);
    return;
  }
  refuse_mark(path);
  auto converted = value_from(value, "'" + path + "'");
  if (!converted) {
    raise_type_error("'" + path + "' is a " + quoted_type(value) +
                     "; legal are None, bool, int, float, str and lists of these; an array of the "
                     "loan is filled in place: loan['" +
                     path + "'][...] = array");
  }
  unwrap(self.loan->try_set(path, *std::move(converted)));
}

void set_value(LoanHandle& self, nb::object key, nb::object value) {
  (void)unsent(self, "loan.set");
  set_at(self, path_of(key), value);
}

}  // namespace

void bind_loan(nb::module_& module) {
  nb::class_<LoanHandle>(module, "Loan", kLoanDoc)
      .def(
          "__getitem__",
          [](const LoanHandle& self, nb::object key) {
            return entry_of(unsent(self, "loan.get"), path_of(key));
          },
          nb::arg("key").none(),
          nb::sig("def __getitem__(self, key: str | tuple[str, ...]) -> typing.Any"))
      .def("__setitem__", set_value, nb::arg("key").none(), nb::arg("value").none(),
           "Adds a value that is no array, or a dict of such: it travels too.",
           nb::sig("def __setitem__(self, key: str | tuple[str, ...], value: object) -> None"))
      .def_prop_ro(
          "dict", [](const LoanHandle& self) { return unsent(self, "loan.dict"); },
          "All of it as a Mapping. InvalidArgument after it was sent.")
      .def_prop_ro(
          "empty", [](const LoanHandle& self) { return self.loan->empty(); },
          "True after it was sent.")
      .def("__repr__", [](const LoanHandle& self) {
        if (self.loan->empty()) return std::string("tendon.Loan(sent)");
        return "tendon.Loan(" + nb::cast<std::string>(nb::repr(nb::cast(self.loan->dict()))) + ")";
      });
}

}  // namespace tendon::python
