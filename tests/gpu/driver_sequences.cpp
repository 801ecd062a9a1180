// SPDX-License-Identifier: Apache-2.0
// Prints the lines of DriverSequences on the driver that is named, else libcuda.so.1. It links no
// library of Tendon, so that one call of the compiler builds it.
#include "support/cuda/driver_sequences.hpp"

#include <dlfcn.h>

#include <cstdio>

using tendon::v0::detail::cuda::DriverTable;
using tendon::v0::detail::cuda::Status;

namespace {

template <class F>
void find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
}

DriverTable table_of(void* library) {
  DriverTable table;
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters) \
  find(library, #exported, table.field);
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
  return table;
}

}  // namespace

int main(int argument_count, char** arguments) {
  void* const library = dlopen(argument_count > 1 ? arguments[1] : "libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "driver_sequences: %s\n", dlerror());
    return 1;
  }
  const DriverTable table = table_of(library);
  tendon::test::DriverSequences(table, [](const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }).run();
  return 0;
}
