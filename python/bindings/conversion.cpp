// SPDX-License-Identifier: Apache-2.0
#include "conversion.hpp"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "errors.hpp"

namespace tendon::python {
namespace {

void check_device(nb::handle device) {
  std::string name;
  if (PyUnicode_Check(device.ptr()) != 0) {
    name = utf8_of(device);
  } else if (nb::hasattr(device, "type") && nb::hasattr(device, "index")) {
    name = utf8_of(nb::str(device));  // a torch.device
  } else {
    raise_type_error("device is " + shown(device) +
                     "; legal are 'cpu', torch.device('cpu') and None");
  }
  if (name == "cpu" || name == "cpu:0") return;
  throw to_exception(
      {ErrorCode::unsupported_device, "python.device",
       "device is '" + name +
           "': Tensors arrive in memory of the host, and memory of other devices is not built yet; "
           "legal is 'cpu': receive there, then move what came, such as batch['x'].to('" +
           name + "')"});
}

nb::object part(const char* name) { return nb::module_::import_("tendon._convert").attr(name); }

}  // namespace

nb::object conversion_from(nb::handle as, nb::handle device) {
  if (!device.is_none()) check_device(device);
  if (as.is_none()) return nb::none();
  return part("conversion")(as, device);
}

nb::object converted(TensorDict batch, nb::handle conversion) {
  nb::object made = nb::cast(std::move(batch));
  if (conversion.is_none()) return made;
  return part("convert")(made, conversion);
}

nb::object each_of(nb::object source, nb::object timeout, nb::dict arguments) {
  return nb::module_::import_("tendon._each").attr("Each")(source, timeout, arguments);
}

}  // namespace tendon::python
