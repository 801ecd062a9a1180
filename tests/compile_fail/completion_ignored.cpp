// SPDX-License-Identifier: Apache-2.0
// Dropping a completion cancels nothing and tells nothing: it cannot be done by accident.
// expect: unused-result
#include <tendon/pipe/pipe.hpp>

void use(tendon::Pipe& pipe) {
#ifdef TENDON_MUST_COMPILE
  const tendon::Completion<tendon::TensorDict> next = pipe.recv_async();
  (void)next;
#else
  pipe.recv_async();
#endif
}
