// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "shared.hpp"

namespace tendon::python {

/// An object that holds references to Python objects while the library keeps it, such as a buffer
/// that is being sent. A thread without the GIL may drop its last share. That thread does not wait
/// for the GIL: it pushes the object on a lock-free stack, which the interpreter empties.
struct Deferred {
  virtual ~Deferred() = default;
  Deferred* next = nullptr;
};

/// Deletes now if this thread holds the GIL, else soon.
void release(Deferred* held) noexcept;
/// Deletes the objects that other threads pushed. Holds the GIL.
TENDON_BETWEEN_MODULES void release_left_over() noexcept;

/// A share that may be dropped by any thread.
template <class T>
std::shared_ptr<T> share(std::unique_ptr<T> held) {
  return std::shared_ptr<T>(held.release(), [](T* last) { release(last); });
}

}  // namespace tendon::python
