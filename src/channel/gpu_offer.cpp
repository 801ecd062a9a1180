// SPDX-License-Identifier: Apache-2.0
#include "channel/gpu_offer.hpp"

#include <string>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

Result<std::uint32_t> offer_gpu(Link& link, const cuda::Uuid& gpu, std::string_view where) {
  if (!link.features().has(Feature::devices)) {
    return Error{ErrorCode::unsupported_device, where,
                 "the Tendon of " + link.peer_name() +
                     " is older and takes no tensors on GPUs: copy them to the CPU, or update it"};
  }
  const auto number =
      link.device_offers.number_of(gpu, [&](const Descriptor& word) { link.post(word); });
  if (number) return *number;
  return Error{ErrorCode::unsupported_device, where,
               "tensors of more than " + std::to_string(kMaxDevicesPerLink) +
                   " GPUs were sent to " + link.peer_name() + " (kMaxDevicesPerLink)"};
}

}  // namespace tendon::v0::detail
