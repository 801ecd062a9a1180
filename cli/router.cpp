// SPDX-License-Identifier: Apache-2.0
// `tendon router`: a router of Zenoh, through which nodes find each other.
#include <fmt/format.h>

#include <string>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "fabric/discovery/zenoh_membership.hpp"
#include "fabric/zenoh/zenoh_session.hpp"

namespace tendon::cli {
namespace {

// The place where `zenohd` listens, and where clients look for it.
constexpr const char* kDefaultPlace = "127.0.0.1:7447";

void wait_for(Interrupt& interrupt) {
  detail::Mutex mutex;
  detail::CondVar came;
  const Interrupt::Guard guard(interrupt, [&] {
    const detail::Lock lock(mutex);
    came.notify_all();
  });
  const detail::Lock lock(mutex);
  while (!interrupt.requested()) came.wait(mutex);
}

}  // namespace

int run_router(const RouterOptions& options) {
  return run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    TENDON_TRY(listen, detail::zenoh_endpoints(options.listen.empty()
                                                   ? std::vector<std::string>{kDefaultPlace}
                                                   : options.listen));
    TENDON_TRY(connect, detail::zenoh_endpoints(options.connect));
    TENDON_TRY(router, detail::open_zenoh({.mode = detail::ZenohMode::router,
                                           .connect = std::move(connect),
                                           .listen = listen,
                                           .profile = options.profile},
                                          Deadline::now()));
    if (options.format == Format::json) {
      print_json({{"listening", Value::List(listen.begin(), listen.end())}});
    } else {
      for (const std::string& place : listen) say(fmt::format("tendon: router on {}", place));
    }
    wait_for(interrupt);
    return {};
  });
}

}  // namespace tendon::cli
