// SPDX-License-Identifier: Apache-2.0
// One slot, one owner: two copies of a loan could be sent to two peers.
// expect: deleted
#include <tendon/tensor/loan.hpp>
#include <utility>

tendon::Loan use(tendon::Loan& loan) {
#ifdef TENDON_MUST_COMPILE
  return std::move(loan);
#else
  return loan;
#endif
}
