// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "control/flows/flow_places.hpp"
#include "core/thread.hpp"

namespace tendon::v0::detail {

/// Learns of each connection that ZeroMQ accepts at sockets between hosts, and keeps those whose
/// handshakes have not ended within FlowPlaces' bounds.
///
/// Owns:    two sockets, one more for each flow that lives, and a thread.
/// Threads: safe everywhere.
/// Errors:  zmq::error_t; resource_exhausted without a thread or a descriptor.
/// Blocks:  its end waits for the thread: the context must have been shut down.
/// Cost:    a thread that sleeps between connections.
class FlowDoor {
 public:
  [[nodiscard]] static Result<std::unique_ptr<FlowDoor>> open(zmq::context_t& context);
  FlowDoor(zmq::context_t& context, zmq::socket_t told, zmq::socket_t tells)
      : context_(context), told_(std::move(told)), tells_(std::move(tells)) {}
  FlowDoor(const FlowDoor&) = delete;
  FlowDoor& operator=(const FlowDoor&) = delete;
  ~FlowDoor() = default;

  /// Watches a socket of this context before it is bound to a port.
  [[nodiscard]] Result<void> watch(zmq::socket_t& socket) TENDON_EXCLUDES(mutex_);

 private:
  struct Flow {
    zmq::socket_t events;
    FlowPlaces places;
  };

  void run();
  /// False: the socket of the events is closed.
  [[nodiscard]] static bool take_events(Flow& flow);
  void take_new(std::vector<Flow>& flows) TENDON_EXCLUDES(mutex_);

  zmq::context_t& context_;
  zmq::socket_t told_;  // the thread's, of new flows
  Mutex mutex_;
  zmq::socket_t tells_ TENDON_GUARDED_BY(mutex_);
  std::vector<Flow> new_ TENDON_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace tendon::v0::detail
