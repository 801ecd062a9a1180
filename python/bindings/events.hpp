// SPDX-License-Identifier: Apache-2.0
// Events of nodes and peers for Python. C++ calls a callback, which would need the GIL on the
// service thread; Python iterates instead.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <tendon/core/member_event.hpp>
#include <tendon/fabric/fabric_event.hpp>

#include "event_queue.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python FabricEvents or MemberEvents.
template <class Event>
struct EventsHandle {
  nb::object source;   // a Node, a Subscriber or a Context
  nb::object context;  // of `source`
  std::shared_ptr<EventQueue<Event>> queue;
};

/// `Node.events()`.
[[nodiscard]] EventsHandle<FabricEvent> events_of_node(nb::object node);
/// `Subscriber.events()`.
[[nodiscard]] EventsHandle<FabricEvent> events_of_subscriber(nb::object subscriber);
/// `Context.events()`.
[[nodiscard]] EventsHandle<MemberEvent> events_of_context(nb::object context);

}  // namespace tendon::python
