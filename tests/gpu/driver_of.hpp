// SPDX-License-Identifier: Apache-2.0
// The driver for programs of this folder. They link no library of Tendon, so that one call of the
// compiler builds each.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cuda/driver_table.hpp"

namespace tendon::test {

/// The driver that the first argument of a program names, else TENDON_CUDA_LIBRARY, else
/// libcuda.so.1. Nothing: there is none, which is told on stderr.
[[nodiscard]] inline std::optional<v0::detail::cuda::DriverTable> driver_of(int argument_count,
                                                                            char** arguments) {
  const char* const variable = std::getenv("TENDON_CUDA_LIBRARY");
  const char* const name = argument_count > 1    ? arguments[1]
                           : variable != nullptr ? variable
                                                 : "libcuda.so.1";
  void* const library = dlopen(name, RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], dlerror());
    return std::nullopt;
  }
  v0::detail::cuda::DriverTable table;
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters) \
  table.field = reinterpret_cast<decltype(table.field)>(dlsym(library, #exported));
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
  return table;
}

}  // namespace tendon::test
