// SPDX-License-Identifier: Apache-2.0
// Pipes for parts of the library that have a Context's core: its handle belongs to the program.
#pragma once

#include <memory>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>

namespace tendon::v0::detail {

class ContextCore;

/// As Listener::bind().
[[nodiscard]] TENDON_API Result<Listener> bind_in(const std::shared_ptr<ContextCore>& context,
                                                  std::string_view address, ListenOptions options);
/// As Pipe::connect().
[[nodiscard]] TENDON_API Result<Pipe> connect_in(const std::shared_ptr<ContextCore>& context,
                                                 std::string_view address, Deadline deadline,
                                                 const ConnectOptions& options);

}  // namespace tendon::v0::detail
