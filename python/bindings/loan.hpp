// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/tensor/loan.hpp>

namespace tendon::python {

/// What a Python Loan holds. It is shared with a send that goes on after Ctrl-C.
struct LoanHandle {
  std::shared_ptr<Loan> loan;
};

}  // namespace tendon::python
