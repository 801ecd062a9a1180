// SPDX-License-Identifier: Apache-2.0
#include "events.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <chrono>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "context.hpp"
#include "future.hpp"
#include "node.hpp"
#include "subscriber.hpp"
#include "wait.hpp"

namespace tendon::python {
namespace {

template <class Event>
std::string text_of(const Event& event) {
  std::ostringstream text;
  text << event;
  return text.str();
}

// time.monotonic() reads the same clock.
double monotonic_of(std::chrono::steady_clock::time_point when) {
  return seconds_of(when.time_since_epoch());
}

// The queue ends with its handle, even if a source still calls it.
template <class Event, class Source>
EventsHandle<Event> make_events(nb::object source, nb::object context, Source& where,
                                auto subscribe) {
  const auto queue = std::make_shared<EventQueue<Event>>();
  subscribe(where, [weak = std::weak_ptr(queue)](const Event& event) {
    if (const auto open = weak.lock()) open->push(event);
  });
  return {std::move(source), std::move(context), queue};
}

template <class Event>
std::unique_ptr<Future> next_event(nb::object events, nb::object timeout, ErrorCode closed_as) {
  const auto& handle = nb::cast<const EventsHandle<Event>&>(events);
  auto future = make_future(
      handle.context, std::move(timeout), handle.queue->post(closed_as),
      [](Event event) { return nb::cast(std::move(event)); }, "events.recv",
      [] { return std::string("nothing happened until the deadline"); });
  future->watched = std::move(events);
  return future;
}

nb::tuple attempts_of(const FabricEvent& event) {
  nb::list attempts;
  for (const DialAttempt& each : event.tried)
    attempts.append(nb::make_tuple(each.address, each.error));
  return nb::tuple(attempts);
}

template <class Event>
void bind_events(nb::module_& module, const char* name, const char* doc, const char* recv_sig,
                 const char* next_sig, const char* anext_sig, const char* enter_sig,
                 const char* iter_sig, const char* aiter_sig) {
  using Handle = EventsHandle<Event>;
  const auto recv = [](const Handle& self, nb::handle timeout) {
    const auto queue = self.queue;
    return wait_in_slices(
        deadline_of(timeout, 0), [&](Deadline slice) { return queue->next("events.recv", slice); },
        [&](Result<Event> event) { queue->put_back(*std::move(event)); });
  };
  nb::class_<Handle>(module, name, doc, nb::is_weak_referenceable())
      .def(
          "recv",
          [recv](const Handle& self, nb::object timeout) { return unwrap(recv(self, timeout)); },
          nb::arg("timeout").none() = nb::none(),
          "The next event. timeout: seconds, None waits for ever. Raises Timeout,\n"
          "PipeClosed after close().",
          nb::sig(recv_sig))
      .def(
          "arecv",
          [](nb::object self, nb::object timeout) {
            return next_event<Event>(std::move(self), std::move(timeout), ErrorCode::pipe_closed);
          },
          nb::arg("timeout").none() = nb::none(),
          "`event = await events.arecv()`. A task that is cancelled in it leaves its event\n"
          "to the next one. timeout: seconds, None waits for ever.",
          nb::sig("def arecv(self, timeout: float | None = None) -> Future[typing.Any]"))
      .def(
          "__iter__", [](nb::object self) { return self; }, nb::sig(iter_sig))
      .def(
          "__next__",
          [recv](const Handle& self) {
            auto event = recv(self, nb::none());
            if (!event && event.error().code == ErrorCode::pipe_closed) throw nb::stop_iteration();
            return unwrap(std::move(event));
          },
          nb::sig(next_sig))
      .def(
          "__aiter__", [](nb::object self) { return self; }, nb::sig(aiter_sig))
      .def(
          "__anext__",
          [](nb::object self) {
            auto future = next_event<Event>(std::move(self), nb::none(), ErrorCode::end_of_stream);
            future->ends_iteration = true;
            return future;
          },
          nb::sig(anext_sig))
      .def(
          "fileno", [](const Handle& self) { return unwrap(self.queue->fd()); },
          "A descriptor for an event loop, readable when a future of arecv() is done.")
      .def("_arm", [](const Handle& self) { self.queue->arm(); })
      .def_prop_ro(
          "dropped", [](const Handle& self) { return self.queue->dropped(); },
          "Events that came while 4096 waited: only logged.")
      .def(
          "close", [](const Handle& self) { self.queue->close(); },
          "Nothing comes any more; iteration ends behind what waits. May be repeated.",
          nb::sig("def close(self) -> None"))
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig(enter_sig))
      .def(
          "__exit__", [](const Handle& self, nb::args) { self.queue->close(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
}

void bind_fabric_event(nb::module_& module) {
  nb::class_<FabricEvent>(module, "FabricEvent", "What a node wants its program to know.")
      .def_prop_ro(
          "kind", [](const FabricEvent& self) { return std::string(to_string(self.kind)); },
          "'gap', 'lagging', 'schema_mismatch', 'duplicate_name', 'undiscoverable',\n"
          "'unreachable', 'plain_refused', 'plain_deleted', 'plain_dropped'; 'came': a subscriber "
          "is connected to a\n"
          "publisher; 'ended': the samples of a publisher ended at a subscriber; 'unsent': a\n"
          "publisher was closed before a subscriber was shown everything; 'not_taken': a\n"
          "subscriber does not get some samples of a publisher, as those on a GPU; "
          "'discovery_lost',\n"
          "'discovery_found': no router answers, or one does again;\n"
          "'runtime_directory_changed': what nodes have for newcomers of this host is in\n"
          "another directory.")
      .def_ro("key", &FabricEvent::key, "Of the topic; '' for names of nodes.")
      .def_ro("node", &FabricEvent::node, "The name of the other one.")
      .def_ro("reason", &FabricEvent::reason, "How it is known, and what was tried.")
      .def_ro("gap", &FabricEvent::gap, "Of 'gap': the samples that do not come.")
      .def_ro("ended", &FabricEvent::ended, "Of 'ended': how, and how far the publisher was.")
      .def_ro("entity", &FabricEvent::entity,
              "The publisher, as Sample.entity names it; 0: it is about none.")
      .def_ro("subscriber", &FabricEvent::subscriber,
              "The subscriber of this node, as its entity says; 0: it is about none.")
      .def_ro("old_directory", &FabricEvent::old_directory,
              "Of 'runtime_directory_changed'; '': there was none.")
      .def_ro("new_directory", &FabricEvent::new_directory,
              "Of 'runtime_directory_changed'; '': there is none that is this user's alone.")
      .def_prop_ro("tried", attempts_of,
                   "Of 'unreachable': each address that was dialled, with its error.",
                   nb::sig("def tried(self) -> tuple[tuple[str, str], ...]"))
      .def_prop_ro(
          "when", [](const FabricEvent& self) { return monotonic_of(self.when); },
          "As time.monotonic() tells it.")
      .def("__str__", text_of<FabricEvent>)
      .def("__repr__",
           [](const FabricEvent& self) { return "tendon.FabricEvent(" + text_of(self) + ")"; });
}

void bind_member_event(nb::module_& module) {
  nb::class_<MemberEvent>(module, "MemberEvent", "What happened to a peer of a Context.")
      .def_prop_ro(
          "kind", [](const MemberEvent& self) { return std::string(to_string(self.kind)); },
          "'joined': a link to it was made; 'suspect': silent for a while, not proved\n"
          "dead; 'alive': no more suspect; 'left': closed in order; 'lost': died, or\n"
          "cannot be reached; 'unsent': this Context ended before all was sent to it.")
      .def_ro("member", &MemberEvent::member, "'learner (host a, pid 4711)'.")
      .def_ro("reason", &MemberEvent::reason, "How it is known.")
      .def_prop_ro(
          "context", [](const MemberEvent& self) { return self.context.to_string(); },
          "The id of the peer's Context: a restarted process has another one.")
      .def_prop_ro(
          "when", [](const MemberEvent& self) { return monotonic_of(self.when); },
          "As time.monotonic() tells it.")
      .def("__str__", text_of<MemberEvent>)
      .def("__repr__",
           [](const MemberEvent& self) { return "tendon.MemberEvent(" + text_of(self) + ")"; });
}

}  // namespace

EventsHandle<FabricEvent> events_of_node(nb::object node) {
  const NodeHandle& handle = nb::cast<const NodeHandle&>(node);
  const auto shared = handle.node;
  return make_events<FabricEvent>(node, handle.context, *shared, [](Node& where, auto callback) {
    where.on_event(std::move(callback));
  });
}

EventsHandle<FabricEvent> events_of_subscriber(nb::object subscriber) {
  const SubscriberHandle& handle = nb::cast<const SubscriberHandle&>(subscriber);
  const auto shared = handle.subscriber;
  return make_events<FabricEvent>(
      subscriber, nb::cast<const NodeHandle&>(handle.node).context, *shared,
      [](Subscriber& where, auto callback) { where.on_event(std::move(callback)); });
}

EventsHandle<MemberEvent> events_of_context(nb::object context) {
  const auto shared = nb::cast<const ContextHandle&>(context).context;
  return make_events<MemberEvent>(context, context, *shared, [](Context& where, auto callback) {
    where.on_member(std::move(callback));
  });
}

void bind_events(nb::module_& module) {
  bind_fabric_event(module);
  bind_member_event(module);
  bind_events<FabricEvent>(
      module, "FabricEvents",
      "The events of a node, or of one subscriber, since this was made; of Node.events()\n"
      "and Subscriber.events().\n\n"
      "    for event in node.events():\n"
      "        print(event)\n\n"
      "`async for` lets an event loop go on meanwhile.",
      "def recv(self, timeout: float | None = None) -> FabricEvent",
      "def __next__(self) -> FabricEvent", "def __anext__(self) -> typing.Awaitable[FabricEvent]",
      "def __enter__(self) -> FabricEvents", "def __iter__(self) -> typing.Iterator[FabricEvent]",
      "def __aiter__(self) -> typing.AsyncIterator[FabricEvent]");
  bind_events<MemberEvent>(
      module, "MemberEvents", "The events of a Context since this was made; of Context.events().",
      "def recv(self, timeout: float | None = None) -> MemberEvent",
      "def __next__(self) -> MemberEvent", "def __anext__(self) -> typing.Awaitable[MemberEvent]",
      "def __enter__(self) -> MemberEvents", "def __iter__(self) -> typing.Iterator[MemberEvent]",
      "def __aiter__(self) -> typing.AsyncIterator[MemberEvent]");
}

}  // namespace tendon::python
