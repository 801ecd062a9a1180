// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <tendon/memory/pool.hpp>
#include <tendon/tensor/tensor.hpp>

#include "arrays_out.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "schema.hpp"

namespace tendon::python {

void bind_pool(nb::module_& module) {
  nb::class_<PoolSummary>(module, "PoolSummary", "What a pool holds at one moment.")
      .def_ro("cap_bytes", &PoolSummary::cap_bytes, "A limit, not an allocation.")
      .def_ro("resident_bytes", &PoolSummary::resident_bytes,
              "Slots that were touched and not given back to the system.")
      .def_ro("loaned_count", &PoolSummary::loaned_count, "Slots in use.")
      .def_ro("segment_count", &PoolSummary::segment_count, "Runs of shared memory.")
      .def("__repr__", &PoolSummary::to_string);
  nb::class_<Pool>(module, "Pool",
                   "Shared, registered memory of a Context, kept warm for the next use.")
      .def(
          "empty",
          [](Pool& self, nb::object shape, nb::object dtype) {
            const Shape sizes = shape_from(shape);
            const DType type = dtype_of_object(dtype);
            return to_array(unwrap(Tensor::view(
                unwrap(self.allocate(unwrap(sizes.size_bytes(type)))), 0, type, sizes)));
          },
          nb::arg("shape").none(), nb::arg("dtype").none() = "f32",
          "An array in the pool, contents unspecified; it goes back with its last view.",
          nb::sig("def empty(self, shape: int | tuple[int, ...], dtype: object = 'f32') -> "
                  "typing.Any"))
      .def("summary", &Pool::summary);
}

}  // namespace tendon::python
