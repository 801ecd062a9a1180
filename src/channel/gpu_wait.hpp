// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>

#include "cuda/stream_work.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// Waits as a call of a pipe does, and makes progress meanwhile, until the GPU has done all work
/// that the stream has now. `link`: as for ContextCore::wait(). Errors: timeout; that of `usable`,
/// once it has one; those of the driver.
[[nodiscard]] Result<void> wait_for_gpu(cuda::StreamWork& work,
                                        const std::shared_ptr<ContextCore>& context, Link* link,
                                        Deadline deadline,
                                        const std::function<Result<void>()>& usable);

}  // namespace tendon::v0::detail
