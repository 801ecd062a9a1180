// SPDX-License-Identifier: Apache-2.0
// Identifies the process. A forked child must not touch the resources of its parent: descriptors,
// rings, slots.
#pragma once

#include <cstdint>
#include <tendon/core/export.hpp>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// A number that differs between a process and every process forked from it. Reading it is one
/// load.
///
/// Two mechanisms keep it right: a pthread_atfork child handler, and a page under MADV_WIPEONFORK
/// for children made without that handler (a raw clone). getpid() in each call would be a system
/// call.
[[nodiscard]] TENDON_API std::uint32_t process_number() noexcept;

/// Marks a descriptor to be closed in a forked child at once, so that peers of the parent see EOF
/// when the parent dies although the child lives on.
TENDON_API void close_in_child(int fd) noexcept;
TENDON_API void forget_in_child(int fd) noexcept;

}  // namespace tendon::v0::detail
