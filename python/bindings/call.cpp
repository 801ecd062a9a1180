// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <nanobind/stl/string.h>

#include <stop_token>
#include <utility>

#include "background.hpp"
#include "bindings.hpp"
#include "choices.hpp"
#include "context.hpp"
#include "conversion.hpp"
#include "copies.hpp"
#include "dicts.hpp"
#include "read_only_memory.hpp"

namespace tendon::python {
namespace {

/// The state of a Python Unanswered.
struct UnansweredHandle {
  std::string node;
  nb::object error;
};

/// Waits on another thread, not in slices: each slice would ask anew. Ctrl-C abandons the requests.
template <class Ask>
auto ask(const NodeHandle& self, const nb::object& data, const nb::object& timeout, Ask ask) {
  const Deadline deadline = deadline_of(timeout, default_timeout_s(self.context));
  release_left_over();
  std::stop_source stop;
  const auto beside = [node = self.node, request = data.is_none() ? TensorDict() : dict_from(data),
                       token = stop.get_token(),
                       ask](Deadline end) { return ask(*node, request, token, end); };
  return unwrap(wait_beside(deadline, beside, [&stop] { stop_at_signal(stop); }));
}

void bind_stats(nb::module_& module) {
  nb::class_<CallStats>(module, "CallStats", "The calls of a node since it was made.")
      .def_ro("calls", &CallStats::calls, "That asked a responder.")
      .def_ro("answers", &CallStats::answers, "That were taken.")
      .def_ro("late_answers", &CallStats::late_answers,
              "That came when nobody waited for them any more: dropped.");
}

ReplyHandle made(Reply reply, const std::string& key, bool wants_copy, nb::handle as) {
  if (wants_copy) reply.tensors = private_copy(reply.tensors);
  note_read_only(reply.tensors, key);
  return {std::move(reply.node), converted(std::move(reply.tensors), as)};
}

}  // namespace

ReplyHandle call(const NodeHandle& self, const std::string& key, nb::object data,
                 nb::object timeout, const std::string& mode, nb::object as, nb::object device) {
  as = conversion_from(as, device);
  const bool wants_copy = wants_copy_from(mode);
  Reply reply = ask(self, data, timeout,
                    [key](Node& node, const TensorDict& request, const std::stop_token& stop,
                          Deadline end) { return node.call(key, request, stop, end); });
  return made(std::move(reply), key, wants_copy, as);
}

CallAllHandle call_all(const NodeHandle& self, const std::string& key, nb::object data,
                       nb::object timeout, const std::string& mode, nb::object as,
                       nb::object device) {
  as = conversion_from(as, device);
  const bool wants_copy = wants_copy_from(mode);
  CallAllReplies came =
      ask(self, data, timeout,
          [key](Node& node, const TensorDict& request, const std::stop_token& stop, Deadline end) {
            return node.call_all(key, request, stop, end);
          });
  CallAllHandle all;
  for (Reply& reply : came.replies)
    all.replies.append(nb::cast(made(std::move(reply), key, wants_copy, as)));
  for (Unanswered& one : came.unanswered)
    all.unanswered.append(
        nb::cast(UnansweredHandle{std::move(one.node), exception_object(one.error)}));
  return all;
}

void bind_call(nb::module_& module) {
  bind_stats(module);
  nb::class_<ReplyHandle>(module, "Reply",
                          "The answer of one responder. Its arrays are read-only where the\n"
                          "responder is on this host.")
      .def_ro("node", &ReplyHandle::node, "The name of the node that answered.")
      .def_ro("tensors", &ReplyHandle::tensors, "A TensorDict, or what as_= named.",
              nb::sig("def tensors(self) -> typing.Any"))
      .def("__repr__",
           [](const ReplyHandle& self) { return "tendon.Reply(of " + self.node + ")"; });
  nb::class_<UnansweredHandle>(module, "Unanswered", "A responder without an answer.")
      .def_ro("node", &UnansweredHandle::node, "The name of its node.")
      .def_ro("error", &UnansweredHandle::error, "Why: a Timeout, or what became of it.",
              nb::sig("def error(self) -> Error"))
      .def("__repr__", [](const UnansweredHandle& self) {
        return "tendon.Unanswered(" + self.node + ": " +
               nb::cast<std::string>(self.error.attr("name")) + ")";
      });
  nb::class_<CallAllHandle>(module, "CallAllReplies", "What came of Node.call_all().")
      .def_ro("replies", &CallAllHandle::replies, "In the order in which they came.",
              nb::sig("def replies(self) -> list[Reply]"))
      .def_ro("unanswered", &CallAllHandle::unanswered, "Those without an answer, by node.",
              nb::sig("def unanswered(self) -> list[Unanswered]"))
      .def("__repr__", [](const CallAllHandle& self) {
        return "tendon.CallAllReplies(" + std::to_string(nb::len(self.replies)) + " replies, " +
               std::to_string(nb::len(self.unanswered)) + " unanswered)";
      });
}

}  // namespace tendon::python
