// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placement.hpp"
#include "transport/device_body.hpp"

namespace tendon::v0::detail {

/// A message, when it was taken, whose tensors lie on a GPU of this process in its peer's memory.
struct DirectMessage {
  std::shared_ptr<const DeviceBody> body;
  std::shared_ptr<const Schema> schema;
  std::shared_ptr<const Placement> placement;
  Storage host;  ///< the payload: leaves of host memory
  std::shared_ptr<const Value> values;
};

/// Returns the fault of its lengths or places; it names no peer.
[[nodiscard]] std::string_view check_direct(const DirectMessage& message,
                                            const Descriptor& descriptor);

/// The leaves of a batch in two places, by placed_layout(). Errors: those of its values.
struct PlacedBatch {
  std::shared_ptr<const Schema> schema;
  const Placement& placement;
  Storage on_gpu;
  Storage host;
  std::shared_ptr<const Value> values;
};
[[nodiscard]] Result<TensorDict> placed_batch(PlacedBatch parts);

/// Makes its batch in place, to be read only. `owner` of the tensors there has a share of the body.
/// Errors: those of its values. Precondition: check_direct() has found nothing.
[[nodiscard]] Result<TensorDict> direct_batch(DirectMessage message,
                                              std::shared_ptr<const void> owner);

}  // namespace tendon::v0::detail
