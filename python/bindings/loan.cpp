// SPDX-License-Identifier: Apache-2.0
#include "loan.hpp"

#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "conversion.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

constexpr const char* kLoanDoc =
    "Arrays in memory that the peer can read: fill them, then send the loan, and\n"
    "nothing is copied.\n\n"
    "loan['image'][:] = frame; loan['step'] = 7; pipe.send(loan)\n\n"
    "On a GPU its arrays are Tensors, which other libraries fill there:\n"
    "torch.from_dlpack(loan['image']).copy_(frame), or out=.\n\n"
    "While it is sent it is empty. An error of send() or publish() leaves it full again,\n"
    "and so does what isend() and asend() refuse at once, such as WrongLink; an error that\n"
    "their Future has later, such as Timeout, leaves it empty. After a successful send its\n"
    "memory is the receiver's: do not touch arrays that were taken from it. On a GPU they\n"
    "may be read.";

/// Raises for an empty loan, which has nothing to read or fill.
const TensorDict& unsent(const LoanHandle& self, const char* where) {
  if (self.loan->empty()) {
    throw to_exception({ErrorCode::invalid_argument, where,
                        "the loan was sent or frozen, or is just being sent: nobody fills it now; "
                        "take a new one with pipe.loan or publisher.loan"});
  }
  return self.loan->dict();
}

/// The entries as programs get them: those on a GPU are ready in the order of the loan.
TensorDict entries_of(const LoanHandle& self, const char* where) {
  TensorDict entries = unsent(self, where);
  if (self.stream) set_order(self.stream, entries, self.consumers);
  return entries;
}

std::string way_to_fill(const LoanHandle& self, const std::string& path) {
  const std::string entry = "loan['" + path + "']";
  return self.stream ? "torch.from_dlpack(" + entry + ").copy_(array)" : entry + "[...] = array";
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
                     "loan is filled in place: " +
                     way_to_fill(self, path));
  }
  unwrap(self.loan->try_set(path, *std::move(converted)));
}

void set_value(LoanHandle& self, nb::object key, nb::object value) {
  (void)unsent(self, "loan.set");
  set_at(self, path_of(key), value);
}

}  // namespace

LoanOptions loan_options_from(nb::handle device, nb::handle stream) {
  const Device place = device_from(device).value_or(cpu());
  const auto wanted = stream_from(stream);
  if (place == cpu() && wanted) {
    raise_value_error("stream is given, and device is " + shown(device) +
                      ": host memory is filled without; legal is a GPU with it, device='cuda:0'");
  }
  return {.device = place, .stream = handle_of(wanted)};
}

LoanHandle make_loan(Loan loan, const LoanOptions& options) {
  auto shared = std::make_shared<Loan>(std::move(loan));
  if (options.device == cpu()) return {std::move(shared), std::nullopt, nullptr};
  return {std::move(shared), Stream(static_cast<detail::cuda::StreamHandle>(options.stream)),
          std::make_shared<Consumers>()};
}

std::optional<Stream> stream_for(const LoanHandle& handle, const std::optional<Stream>& wanted,
                                 const char* where) {
  if (handle.stream) return stream_for(entries_of(handle, where), wanted);
  if (wanted) {
    raise_value_error(
        "stream is given, and a loan in host memory is sent without; legal is one on a GPU with "
        "it");
  }
  return std::nullopt;
}

void bind_loan(nb::module_& module) {
  nb::class_<LoanHandle>(module, "Loan", kLoanDoc)
      .def(
          "__getitem__",
          [](const LoanHandle& self, nb::object key) {
            const std::string path = path_of(key);
            return self.stream ? entry_of(entries_of(self, "loan.get"), path)
                               : entry_of(unsent(self, "loan.get"), path);
          },
          nb::arg("key").none(),
          nb::sig("def __getitem__(self, key: str | tuple[str, ...]) -> typing.Any"))
      .def("__setitem__", set_value, nb::arg("key").none(), nb::arg("value").none(),
           "Adds a value that is no array, or a dict of such: it travels too.",
           nb::sig("def __setitem__(self, key: str | tuple[str, ...], value: object) -> None"))
      .def_prop_ro(
          "dict", [](const LoanHandle& self) { return entries_of(self, "loan.dict"); },
          "All of it as a Mapping. InvalidArgument after it was sent or frozen.")
      .def_prop_ro(
          "empty", [](const LoanHandle& self) { return self.loan->empty(); },
          "True after it was sent or frozen, and while it is sent.")
      .def(
          "freeze",
          [](const LoanHandle& self) {
            (void)unsent(self, "loan.freeze");
            TensorDict frozen = unwrap(std::move(*self.loan).freeze());
            set_order(self.stream, frozen, self.consumers);
            return frozen;
          },
          nb::keep_alive<0, 1>(),  // keeps the stream alive
          "The batch in a loan on a GPU, which nobody writes any more: send() and publish() of\n"
          "its Context take it, and its arrays in a dict, any number of times, each without a\n"
          "copy where the peer reads it there. They are behind the streams of all who have its\n"
          "arrays, as for a loan. The loan is empty then.\n\n"
          "Raises NotSupported for one in host memory, InvalidArgument after it was sent.")
      .def("__repr__", [](const LoanHandle& self) {
        if (self.loan->empty()) return std::string("tendon.Loan(sent)");
        return "tendon.Loan(" + nb::cast<std::string>(nb::repr(nb::cast(self.loan->dict()))) + ")";
      });
}

}  // namespace tendon::python
