// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace tendon::v0::detail {

/// Abandons a handle's share that is dropped in a forked child: the object is not touched, and its
/// memory stays. Threads that only the parent has may hold the object's locks, wait in it, which
/// its destruction would wait for, or have been in the middle of a change.
///
/// Owns:    the share, for good: so the last one is never dropped.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    an allocation; the memory of the parent's object stays until the child ends.
template <class T>
void leave_to_parent(std::shared_ptr<T>& share) noexcept {
  (void)new (std::nothrow) std::shared_ptr<T>(std::move(share));
}

}  // namespace tendon::v0::detail
