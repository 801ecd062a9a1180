// SPDX-License-Identifier: Apache-2.0
// The dictionary of a temporary loan would dangle.
// expect: deleted
#include <tendon/pipe/pipe.hpp>
#include <utility>

bool use(tendon::Result<tendon::Loan> loan) {
#ifdef TENDON_MUST_COMPILE
  const tendon::TensorDict& dict = loan->dict();
#else
  const tendon::TensorDict& dict = (*std::move(loan)).dict();
#endif
  return dict.empty();
}
