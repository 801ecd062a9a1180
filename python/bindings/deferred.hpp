// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "shared.hpp"

namespace tendon::python {

/// Something that holds references to Python objects and is kept by the library: a buffer that is
/// being sent. Its last share may be dropped by a thread that does not hold the GIL, and such a
/// thread never waits for it: it pushes the object on a stack without locks, which the
/// interpreter empties.
struct Deferred {
  virtual ~Deferred() = default;
  Deferred* next = nullptr;
};

/// Deletes now if this thread holds the GIL, else soon.
void release(Deferred* held) noexcept;
/// Deletes what other threads left. Holds the GIL.
TENDON_BETWEEN_MODULES void release_left_over() noexcept;

/// A share that may be dropped by any thread.
template <class T>
std::shared_ptr<T> share(std::unique_ptr<T> held) {
  return std::shared_ptr<T>(held.release(), [](T* last) { release(last); });
}

}  // namespace tendon::python
