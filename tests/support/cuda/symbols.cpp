// SPDX-License-Identifier: Apache-2.0
// The exports of the double: each function of driver_functions.def under its own name. Names in
// TENDON_CUDA_DOUBLE_MISSING are not found, because dlsym() asks a function for the address.
#include "support/cuda/calls.hpp"
#include "support/cuda/functions.hpp"
#include "support/cuda/settings.hpp"

namespace tendon::cuda_double {
namespace {

template <Function function, auto does>
struct Call;

template <Function function, class... A, Status (*does)(A...)>
struct Call<function, does> {
  static Status call(A... arguments) {
    if (const Status early = check_call(function); early != Status::success) return early;
    return does(arguments...);
  }
};

}  // namespace
}  // namespace tendon::cuda_double

extern "C" {
using namespace tendon::cuda_double;  // NOLINT(google-build-using-namespace)

#define TENDON_CUDA_FUNCTION(field, exported, since, parameters)                             \
  using TypeOf_##exported = Status(*) parameters;                                            \
  static TypeOf_##exported resolve_##exported() {                                            \
    return is_hidden(#exported) ? nullptr                                                    \
                                : &Call<Function::field, &tendon::cuda_double::field>::call; \
  }                                                                                          \
  __attribute__((visibility("default"), ifunc("resolve_" #exported))) Status exported parameters;
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
}
