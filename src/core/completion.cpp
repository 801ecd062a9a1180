// SPDX-License-Identifier: Apache-2.0
#include <tendon/core/completion.hpp>

#include "core/fork_guard.hpp"

namespace tendon::v0::detail {

CompletionBase::CompletionBase() noexcept : process_(process_number()) {}

bool CompletionBase::forked() const noexcept { return process_ != process_number(); }

Error CompletionBase::forked_error() {
  return Error{ErrorCode::forked, "completion.wait",
               "the operation belongs to the process before fork; begin another one with a Context "
               "of this process"};
}

}  // namespace tendon::v0::detail
