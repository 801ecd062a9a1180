// SPDX-License-Identifier: Apache-2.0
// The double of the driver, loaded as the product loads it, with its entry points for tests beside
// the functions of the driver.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuda/driver.hpp"
#include "cuda/library.hpp"
#include "support/cuda/double.hpp"
#include "support/variable.hpp"

namespace tendon::test {

namespace cuda = v0::detail::cuda;

/// The entry points of double.hpp, by the same names without their prefix.
struct CudaDouble {
  /// `as_it_is`: for a process that uses CUDA already and must keep its contexts.
  enum class World { anew, as_it_is };
  explicit CudaDouble(World world = World::anew)
      : library_(cuda::Library::open(TENDON_CUDA_DOUBLE).value()) {
    if (world == World::anew) reset();
  }

  template <class F>
  F* entry(const char* name) const {
    return reinterpret_cast<F*>(library_.symbol(name));
  }

 private:
  cuda::Library library_;

 public:
#define TENDON_DOUBLE_ENTRY(name) \
  decltype(&::double_##name) name = entry<decltype(::double_##name)>("double_" #name)
  TENDON_DOUBLE_ENTRY(reset);
  TENDON_DOUBLE_ENTRY(calls);
  TENDON_DOUBLE_ENTRY(fail);
  TENDON_DOUBLE_ENTRY(host_memory);
  TENDON_DOUBLE_ENTRY(lose);
  TENDON_DOUBLE_ENTRY(deinitialise);
  TENDON_DOUBLE_ENTRY(launch);
  TENDON_DOUBLE_ENTRY(reads);
  TENDON_DOUBLE_ENTRY(writes);
  TENDON_DOUBLE_ENTRY(kernel);
  TENDON_DOUBLE_ENTRY(begin_capture);
  TENDON_DOUBLE_ENTRY(end_capture);
  TENDON_DOUBLE_ENTRY(pending);
#undef TENDON_DOUBLE_ENTRY
};

}  // namespace tendon::test
