// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/sample.hpp>
#include <tendon/memory/device_target.hpp>

#include "fabric/topics/subscriber_core.hpp"

namespace tendon::v0::detail {

/// Receives the next sample, with its tensors where `target` wants them, or as at their publisher.
/// Errors: those of SubscriberCore::recv(), of wanted_gpu() and copy_to_gpu(); for the publisher's
/// GPU those of Gpus::find(). They leave the sample for the next receive.
[[nodiscard]] Result<Sample> receive_to(SubscriberCore& subscriber, const DeviceTarget& target,
                                        Deadline deadline);

/// Copies the tensors of a sample that arrived on a GPU to host memory; any other stays as it is.
/// Errors: timeout, device_lost, those of memory and of the driver; it stays as it is.
[[nodiscard]] Result<void> bring_to_host(SubscriberCore& subscriber, NumberedSample& taken,
                                         Deadline deadline);

}  // namespace tendon::v0::detail
