// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

/// unsupported_device, naming the first leaf that the CPU cannot read. Code that copies, hashes or
/// sends elements with the CPU calls it before it touches one.
/// Cost:    one look at a packed dict, one for each leaf of a tree.
[[nodiscard]] Result<void> check_on_cpu(const TensorDict& dict, std::string_view where);
/// The same for one object of the caller's: "leaf 'x'", "the file".
[[nodiscard]] Result<void> check_on_cpu(Device device, std::string_view what,
                                        std::string_view where);

}  // namespace tendon::v0::detail
