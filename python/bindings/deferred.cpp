// SPDX-License-Identifier: Apache-2.0
#include "deferred.hpp"

#include <Python.h>

#include <atomic>

namespace tendon::python {
namespace {

std::atomic<Deferred*> left_over{nullptr};

int on_pending_call(void* /*unused*/) {
  release_left_over();
  return 0;
}

}  // namespace

void release(Deferred* held) noexcept {
  // After the interpreter's end the object is not released.
  if (Py_IsInitialized() == 0) return;
  if (PyGILState_Check() != 0) {
    delete held;
    return;
  }
  Deferred* top = left_over.load(std::memory_order_relaxed);
  do {
    held->next = top;
  } while (!left_over.compare_exchange_weak(top, held, std::memory_order_release,
                                            std::memory_order_relaxed));
  // If the queue of pending calls is full, the next thread that calls Tendon empties the stack.
  if (top == nullptr) (void)Py_AddPendingCall(on_pending_call, nullptr);
}

void release_left_over() noexcept {
  if (left_over.load(std::memory_order_relaxed) == nullptr) return;
  Deferred* next = left_over.exchange(nullptr, std::memory_order_acquire);
  while (next != nullptr) {
    Deferred* const held = next;
    next = held->next;
    delete held;
  }
}

}  // namespace tendon::python
