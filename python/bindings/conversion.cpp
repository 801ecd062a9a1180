// SPDX-License-Identifier: Apache-2.0
#include "conversion.hpp"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "errors.hpp"

namespace tendon::python {
namespace {

std::string name_of(nb::handle device) {
  if (PyUnicode_Check(device.ptr()) != 0) return utf8_of(device);
  if (nb::hasattr(device, "type") && nb::hasattr(device, "index"))
    return utf8_of(nb::str(device));  // a torch.device
  raise_type_error("device is " + shown(device) +
                   "; legal are 'cpu', 'cuda:0', a torch.device and None");
}

void check_device(nb::handle device) {
  const std::string name = name_of(device);
  if (name == "cpu" || name == "cpu:0") return;
  throw to_exception(
      {ErrorCode::unsupported_device, "python.device",
       "device is '" + name +
           "': Tensors arrive in memory of the host here, and only receives of pipes and recv() "
           "of subscribers deliver to GPUs; legal is 'cpu': receive there, then move what came, "
           "such as batch['x'].to('" +
           name + "')"});
}

nb::object part(const char* name) { return nb::module_::import_("tendon._convert").attr(name); }

}  // namespace

nb::object conversion_from(nb::handle as, nb::handle device) {
  if (!device.is_none()) check_device(device);
  if (as.is_none()) return nb::none();
  return part("conversion")(as, device);
}

nb::object gpu_conversion_from(nb::handle as, nb::handle device) {
  (void)device_from(device);
  if (as.is_none()) return nb::none();
  return part("conversion")(as, device);
}

std::optional<Device> device_from(nb::handle device) {
  if (device.is_none()) return std::nullopt;
  const std::string name = name_of(device);
  if (name == "cpu:0") return cpu();
  const auto parsed = parse_device(name);
  if (parsed && (*parsed == cpu() || parsed->kind == DeviceKind::cuda)) return parsed;
  throw to_exception({ErrorCode::unsupported_device, "python.device",
                      "device is '" + name + "'; legal are 'cpu' and GPUs: 'cuda:0'"});
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
