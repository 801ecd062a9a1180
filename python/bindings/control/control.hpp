// SPDX-License-Identifier: Apache-2.0
// The extension module tendon._control: Controller and Worker. A module of its own, because it
// needs ZeroMQ and Protobuf; what it shares with `_tendon` it takes from there.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/error.hpp>

#include "without_gil.hpp"

namespace tendon::python {

namespace nb = nanobind;

void bind_worker_status(nb::module_& module);
void bind_controller(nb::module_& module);
void bind_worker(nb::module_& module);

/// A share of an object whose end says something to peers: not with the GIL.
template <class T>
std::shared_ptr<T> share_ending_without_gil(T object) {
  return std::shared_ptr<T>(new T(std::move(object)), [](T* last) {
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
      delete last;
      return;
    }
    const WithoutGil unlocked;
    delete last;
  });
}

}  // namespace tendon::python
