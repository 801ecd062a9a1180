// SPDX-License-Identifier: Apache-2.0
// Loans whose memory lies on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placed_layout.hpp"
#include "cuda/loaned_device_slot.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// How a loan of a pipe waits for room in the Context's pool on a GPU.
struct GpuLoan {
  const std::shared_ptr<cuda::Gpu>& gpu;
  cuda::StreamHandle stream;
  ContextCore& context;
  Link& link;
  std::function<Result<void>()> usable;
};

/// A slot of the pool that peers may read. Waits until one is free. Errors: those of the pool and
/// of `usable`; invalid_argument for a stream of another context, or one that is being captured.
[[nodiscard]] Result<std::shared_ptr<cuda::LoanedDeviceSlot>> take_gpu_loan(
    const GpuLoan& wanted, std::uint64_t size_bytes, Deadline deadline);

/// The batch of a loan as it is sent: nobody may write it any more. Errors: wrong_link for a loan
/// of another Context.
[[nodiscard]] Result<TensorDict> sealed_loan(const TensorDict& batch,
                                             const cuda::LoanedDeviceSlot& loan,
                                             const ContextCore& context);

/// The slot of `pool` in which the leaves on a GPU lie as a message has them, in memory that nobody
/// may write; null: they do not.
[[nodiscard]] std::shared_ptr<cuda::DeviceSlot> loaned_slot_of(const TensorDict& batch,
                                                               const PlacedLayout& layout,
                                                               const cuda::DevicePool& pool);

}  // namespace tendon::v0::detail
