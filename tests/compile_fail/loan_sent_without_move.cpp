// SPDX-License-Identifier: Apache-2.0
// Sending a loan gives it away, so the call must say so: std::move.
// expect: cannot bind rvalue reference
// expect: no matching member function
#include <tendon/pipe/pipe.hpp>
#include <utility>

tendon::Result<void> use(tendon::Pipe& pipe, tendon::Loan& loan) {
#ifdef TENDON_MUST_COMPILE
  return pipe.send(std::move(loan), tendon::Deadline::now());
#else
  return pipe.send(loan, tendon::Deadline::now());
#endif
}
