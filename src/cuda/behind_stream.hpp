// SPDX-License-Identifier: Apache-2.0
// Calls that take effect when the GPU has done all work that a stream has now.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>
#include <vector>

#include "cuda/gpu.hpp"
#include "cuda/stream_name.hpp"

namespace tendon::v0::detail::cuda {

using Owners = std::vector<std::shared_ptr<const void>>;

/// Drops `owners` in the device thread then, or when the context is lost; never earlier. If no
/// event can be recorded, the device thread tries again, once the stream is not being captured, and
/// then synchronises it. If nothing shows that the GPU has done the work, they stay, which is
/// logged. In a forked child they are dropped at once.
void drop_behind(std::shared_ptr<Gpu> gpu, StreamName stream, Owners owners);

/// Calls `told` in the device thread then, or with the error of a lost context. After an error of
/// this call, such as invalid_argument for a stream under capture, it is not called.
[[nodiscard]] Result<void> tell_behind(const std::shared_ptr<Gpu>& gpu, StreamName stream,
                                       std::string_view where,
                                       std::function<void(Result<void>)> told);

/// Checks that the stream is not being captured. The error says what to do. The context is current.
[[nodiscard]] Result<void> check_capture(PrimaryContext& context, StreamHandle stream,
                                         std::string_view where);

}  // namespace tendon::v0::detail::cuda
