// SPDX-License-Identifier: Apache-2.0
#include "pipe/in_context.hpp"

#include <utility>

#include "pipe/listener_core.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {

Result<Listener> bind_in(const std::shared_ptr<ContextCore>& context, std::string_view address,
                         ListenOptions options) {
  TENDON_TRY(core, ListenerCore::bind(context, address, security_of(std::move(options))));
  return ListenerCore::make_listener(std::move(core));
}

Result<Pipe> connect_in(const std::shared_ptr<ContextCore>& context, std::string_view address,
                        Deadline deadline, const ConnectOptions& options) {
  TENDON_TRY(core, PipeCore::connect(context, address, options, deadline));
  return PipeCore::make_pipe(std::move(core));
}

}  // namespace tendon::v0::detail
