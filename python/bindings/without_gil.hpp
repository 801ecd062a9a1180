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
/// Unlike nanobind's own it survives the end of the interpreter: before 3.14 a daemon thread that
/// asks for the GIL then is ended by pthread_exit, whose unwinding may not pass a destructor. Such
/// a thread stays here, as it does in later versions of Python.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() { acquire(); }

  /// The result of f(), called with the GIL in the middle of the scope; it must not throw.
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

/// A share of something whose end waits: for what is unsent, for readers that are behind. The last
/// one lets other threads run meanwhile.
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
