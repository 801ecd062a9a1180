// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/sample.hpp>
#include <tendon/memory/device_target.hpp>

#include "fabric/topics/subscriber_core.hpp"

namespace tendon::v0::detail {

/// The next sample, with its tensors where `target` wants them, or where their publisher had them.
/// Errors: those of SubscriberCore::recv(), of wanted_gpu() and copy_to_gpu(); of the GPU that the
/// publisher had them on, those of Gpus::find(). They leave the sample for the next receive.
[[nodiscard]] Result<Sample> receive_to(SubscriberCore& subscriber, const DeviceTarget& target,
                                        Deadline deadline);

}  // namespace tendon::v0::detail
