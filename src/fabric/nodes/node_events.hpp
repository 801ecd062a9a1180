// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tendon/fabric/fabric_event.hpp>
#include <utility>

#include "fabric/samples/event_log.hpp"
#include "runtime/context_core.hpp"
#include "runtime/event_callbacks.hpp"

namespace tendon::v0::detail {

/// The events of one node: logged, and reported to its program.
///
/// Owns:    the callbacks.
/// Threads: thread-safe; callbacks run where those of the Context do, under no lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    without a callback: the line in the log.
class NodeEvents {
 public:
  void add(std::function<void(const FabricEvent&)> callback) {
    callbacks_.add(std::move(callback));
  }
  /// `owner` has this, and lives until the callbacks have run.
  void tell(ContextCore& context, std::shared_ptr<const void> owner, FabricEvent event) {
    event.when = std::chrono::steady_clock::now();
    log_.note(event, context.log_name());
    if (!callbacks_.admit()) return;
    context.schedule(
        [this, owner = std::move(owner), event = std::move(event)] { callbacks_.call(event); });
  }

 private:
  EventCallbacks<FabricEvent> callbacks_;
  EventLog log_;
};

}  // namespace tendon::v0::detail
