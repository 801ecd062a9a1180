// SPDX-License-Identifier: Apache-2.0
// A pipe has one owner: it moves, it does not copy.
// expect: deleted
#include <tendon/pipe/pipe.hpp>
#include <utility>

tendon::Pipe use(tendon::Pipe& pipe) {
#ifdef TENDON_MUST_COMPILE
  return std::move(pipe);
#else
  return pipe;
#endif
}
