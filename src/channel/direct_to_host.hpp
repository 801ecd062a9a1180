// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/direct_batch.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// One try of a call to copy a message from its GPU. Each try begins anew, so it takes `patience`
/// at least, whatever its deadline: twice as long as the one before. Tries with short deadlines
/// therefore end, too.
struct HostTry {
  const std::shared_ptr<ContextCore>& context;
  Link* link = nullptr;    ///< as for ContextCore::wait()
  std::string_view where;  ///< of errors
  const std::function<Result<void>()>& usable;
  std::chrono::milliseconds& patience;  ///< of this try, then of the next one
};

/// Copies the message to host memory. Waits as wait_for_gpu() does. Errors: timeout; that of
/// `usable`; those of memory and of the driver.
[[nodiscard]] Result<TensorDict> direct_to_host(const DirectMessage& message, const HostTry& how,
                                                Deadline deadline);

}  // namespace tendon::v0::detail
