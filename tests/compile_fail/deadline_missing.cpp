// SPDX-License-Identifier: Apache-2.0
// A call that can wait has no default that means "for ever".
// expect: no matching function
// expect: no matching member function
#include <chrono>
#include <tendon/pipe/pipe.hpp>

tendon::Result<tendon::TensorDict> use(tendon::Pipe& pipe) {
#ifdef TENDON_MUST_COMPILE
  return pipe.recv(std::chrono::seconds(1));
#else
  return pipe.recv();
#endif
}
