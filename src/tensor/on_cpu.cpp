// SPDX-License-Identifier: Apache-2.0
#include "tensor/on_cpu.hpp"

#include <string>
#include <tendon/tensor/packed.hpp>

namespace tendon::v0::detail {

Result<void> check_on_cpu(Device device, std::string_view what, std::string_view where) {
  if (device == cpu()) return {};
  return Error{ErrorCode::unsupported_device, where,
               std::string(what) + " is on " + to_string(device) +
                   "; legal is cpu: copy it there first, nothing is copied in secret"};
}

Result<void> check_on_cpu(const TensorDict& dict, std::string_view where) {
  const PackedView* const packed = packed_view(dict);
  if (packed != nullptr && packed->storage.device() == cpu()) return {};
  for (std::size_t i = 0; i < dict.leaf_count(); ++i) {
    const Device device = leaf_view(dict, i).device;
    if (device != cpu()) return check_on_cpu(device, "leaf '" + dict.leaf_path(i) + "'", where);
  }
  return {};
}

}  // namespace tendon::v0::detail
