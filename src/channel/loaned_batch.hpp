// SPDX-License-Identifier: Apache-2.0
// Batches whose leaves lie in a loan on a GPU, as messages of one or of many peers.
#pragma once

#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placed_layout.hpp"
#include "cuda/loaned_device_slot.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// Makes the batch of a loan for sending: nobody may write it any more. Called before anything else
/// has a share of it. Errors: wrong_link for a loan of another Context.
[[nodiscard]] Result<TensorDict> sealed_loan(const TensorDict& batch, cuda::LoanedDeviceSlot& loan,
                                             const ContextCore& context, std::string_view where);

/// The slot of `pool` whose leaves on a GPU lie as in a message, in memory that nobody may write;
/// null: there is none.
[[nodiscard]] std::shared_ptr<cuda::DeviceSlot> loaned_slot_of(const TensorDict& batch,
                                                               const PlacedLayout& layout,
                                                               const cuda::DevicePool& pool);

}  // namespace tendon::v0::detail
