// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

#include "cuda/driver_table.hpp"

namespace tendon::v0::detail::cuda {

/// True if the context is lost after this answer, and with it the device for this process. Such an
/// error is sticky: every later call in the context answers it, and nothing enqueued runs any more.
[[nodiscard]] TENDON_API bool loses_context(Status status) noexcept;

/// True if a call that releases something has done so. A driver that was unloaded at the end of the
/// process has released all, and a lost context has nothing left to release.
[[nodiscard]] TENDON_API bool is_released(Status status) noexcept;

/// "CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)", in the driver's own words.
[[nodiscard]] TENDON_API std::string status_text(const DriverTable& table, Status status);

/// The error of a call that answered `status`, which is not success. `what` names the call and its
/// object: "cuMemCreate of 2097152 bytes on cuda:0".
[[nodiscard]] TENDON_API Error driver_error(const DriverTable& table, std::string_view where,
                                            std::string_view what, Status status);

/// `forked`: this process is a child of one that used CUDA, and no call may reach the driver.
[[nodiscard]] Error forked_error(std::string_view where);

/// The error of driver_error(), or success.
[[nodiscard]] TENDON_API Result<void> driver_result(const DriverTable& table,
                                                    std::string_view where, std::string_view what,
                                                    Status status);

}  // namespace tendon::v0::detail::cuda
