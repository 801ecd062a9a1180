// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace tendon::python {

/// Releases the GIL for the rest of the scope.
///
/// Unlike nanobind's own class it survives the end of the interpreter. Before 3.14, pthread_exit
/// then ends a daemon thread that asks for the GIL, and its unwinding must not pass a destructor.
/// This class stops such a thread here, as later versions of Python do.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() { acquire(); }

  /// Calls f() with the GIL in the middle of the scope and returns its result; f must not throw.
  template <class F>
  auto with_gil(F f) {
    acquire();
    const auto result = f();
    state_ = PyEval_SaveThread();
    return result;
  }

 private:
  void acquire() {
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      while (true) pause();
    }
  }

  PyThreadState* state_;
};

/// Calls f() without the GIL, and returns its result.
template <class F>
[[nodiscard]] auto without_gil(F f) {
  const WithoutGil unlocked;
  return f();
}

/// Shares an object whose destructor waits, for unsent messages or slow readers. The last share
/// lets other threads run meanwhile.
template <class T>
[[nodiscard]] std::shared_ptr<T> ends_without_gil(T made) {
  return std::shared_ptr<T>(new T(std::move(made)), [](T* last) {
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
      delete last;
      return;
    }
    const WithoutGil unlocked;
    delete last;
  });
}

}  // namespace tendon::python
