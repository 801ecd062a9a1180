// SPDX-License-Identifier: Apache-2.0
#include "node.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "background.hpp"
#include "bindings.hpp"
#include "call.hpp"
#include "choices.hpp"
#include "context.hpp"
#include "events.hpp"
#include "publisher.hpp"
#include "responder.hpp"
#include "subscriber.hpp"

namespace tendon::python {
namespace {

constexpr const char* kNodeDoc =
    "A member of a fabric: a name in a domain, under which a program publishes,\n"
    "subscribes, calls and responds.\n\n"
    "name: unique in its domain; subscribers know a publisher by it.\n"
    "domain: nodes of one domain find each other. '': that of the environment,\n"
    "TENDON_DOMAIN, else 'default'.\n"
    "routers: where routers of Zenoh listen, '10.0.0.7:7447': `tendon router`, or a\n"
    "zenohd. With neither routers nor peers: those of the environment's\n"
    "TENDON_ROUTER; else nodes of one host and user find each other by themselves.\n"
    "Any of them will do; the error has a reason for each that does not answer.\n"
    "discovery: 'required', or 'background' to join without a router: it is tried\n"
    "each second until one answers, which the event 'discovery_found' tells.\n"
    "peers: addresses at which other nodes listen, '10.0.0.7:7450' or 'unix:/path',\n"
    "for discovery without Zenoh; one of two nodes has to name the other. [] to be\n"
    "found by those alone that name this one.\n"
    "listen: where it can be reached beside the unix socket for nodes of this host\n"
    "and user; port 0 lets the system choose, see address. '': nowhere.\n"
    "routed: with discovery by Zenoh, may links lead through its routers, where\n"
    "neither of two nodes reaches the other? It needs profile='plaintext'.\n"
    "plain_keys: sets of keys; subscribers whose keys are all in one of them also hear\n"
    "plain Zenoh peers.\n"
    "profile: 'local' or 'plaintext', as for connect; nodes of a Context have the\n"
    "same.\n"
    "context: by default the one of the module.\n"
    "timeout: seconds; it waits until a router is connected, and each of peers was\n"
    "dialled once. One that is not there yet is no error, and is dialled again.\n\n"
    "Raises AddressInUse, PermissionDenied, InvalidArgument, NotSupported,\n"
    "Unreachable (no router). Safe from every thread. Use it in a `with` block, or\n"
    "close() it; a publisher, subscriber or responder keeps its node.";

void join(NodeHandle* self, const std::string& name, const std::string& domain,
          std::vector<std::string> routers, const std::string& discovery,
          std::optional<std::vector<std::string>> peers, const std::string& listen, bool routed,
          const std::string& profile, std::vector<std::string> plain_keys, nb::object context,
          nb::object timeout) {
  context = context_or_default(std::move(context));
  const auto& handle = nb::cast<const ContextHandle&>(context);
  const NodeOptions options{.domain = domain,
                            .name = name,
                            .routers = std::move(routers),
                            .discovery = word_from<DiscoveryNeed>("discovery", discovery),
                            .peers = std::move(peers),
                            .listen = listen,
                            .routed = routed,
                            .security = {word_from<Profile>("profile", profile)},
                            .plain_keys = std::move(plain_keys)};
  auto joined = wait_beside(deadline_of(timeout, handle.timeout_s),
                            [shared = handle.context, options](Deadline deadline) {
                              return Node::join(*shared, options, deadline);
                            });
  auto node = ends_without_gil(unwrap(std::move(joined)));
  new (self) NodeHandle{std::move(context), std::move(node)};
}

void close(const NodeHandle& self) {
  const auto node = self.node;
  const WithoutGil unlocked;
  node->close();
}

}  // namespace

Deadline until(nb::handle node, nb::handle timeout) {
  return deadline_of(timeout, default_timeout_s(nb::cast<const NodeHandle&>(node).context));
}

void bind_node(nb::module_& module) {
  nb::class_<NodeHandle>(module, "Node", kNodeDoc)
      .def(
          "__init__", join, nb::arg("name"), nb::kw_only(), nb::arg("domain") = "",
          nb::arg("routers") = std::vector<std::string>(), nb::arg("discovery") = "required",
          nb::arg("peers").none() = nb::none(), nb::arg("listen") = "", nb::arg("routed") = true,
          nb::arg("profile") = "local", nb::arg("plain_keys") = std::vector<std::string>(),
          nb::arg("context").none() = nb::none(), nb::arg("timeout").none() = nb::ellipsis(),
          nb::sig("def __init__(self, name: str, *, domain: str = '', routers: "
                  "collections.abc.Sequence[str] = (), discovery: str = 'required', peers: "
                  "collections.abc.Sequence[str] | "
                  "None = None, listen: str = '', routed: bool = True, profile: str = 'local', "
                  "plain_keys: collections.abc.Sequence[str] = (), context: Context | None = None, "
                  "timeout: float | None = ...) -> None"))
      .def("publisher", declare_publisher, nb::arg("key"), nb::kw_only(), nb::arg("history") = 1,
           nb::arg("overflow") = "drop_oldest", nb::arg("priority") = "normal",
           nb::arg("schema").none() = nb::none(), nb::arg("plain_peers") = "automatic",
           nb::arg("plain_bytes") = kDefaultPlainBytes, nb::arg("encoding") = "",
           nb::arg("block_for").none() = 30.0, kPublisherDoc,
           nb::sig(
               "def publisher(self, key: str, *, history: int = 1, overflow: str = "
               "'drop_oldest', priority: str = 'normal', schema: object = None, plain_peers: str = "
               "'automatic', plain_bytes: int = 49152, encoding: str = '', block_for: float | "
               "None = 30) -> Publisher"))
      .def("subscriber", declare_subscriber, nb::arg("keys"), nb::kw_only(), nb::arg("window") = 16,
           nb::arg("max_held") = 4, nb::arg("max_age").none() = nb::none(),
           nb::arg("max_hz").none() = nb::none(), nb::arg("newest_only").none() = nb::none(),
           nb::arg("schema").none() = nb::none(), nb::arg("hears_plain").none() = nb::none(),
           nb::arg("plain_content") = "tensors", nb::arg("ends") = false, kSubscriberDoc,
           nb::sig("def subscriber(self, keys: str, *, window: int = 16, max_held: int = 4, "
                   "max_age: float | None = None, max_hz: float | None = None, newest_only: bool | "
                   "None = None, schema: object = None, hears_plain: bool | None = None, "
                   "plain_content: str = 'tensors', ends: bool = False) -> Subscriber"))
      .def("responder", declare_responder, nb::arg("key"), nb::arg("handler"), nb::kw_only(),
           nb::arg("handlers") = 8, nb::arg("waiting") = 64, kResponderDoc,
           nb::sig("def responder(self, key: str, handler: collections.abc.Callable[[Request], "
                   "object], *, handlers: int = 8, waiting: int = 64) -> Responder"))
      .def("call", call, nb::arg("key"), nb::arg("data").none() = nb::none(),
           nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(), nb::arg("mode") = kViewOrCopy,
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(), kCallDoc,
           nb::sig("def call(self, key: str, data: object = None, timeout: float | None = ..., *, "
                   "mode: str = 'view_or_copy', as_: typing.Any = None, device: object = None) -> "
                   "Reply"))
      .def("call_all", call_all, nb::arg("key"), nb::arg("data").none() = nb::none(),
           nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(), nb::arg("mode") = kViewOrCopy,
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(), kCallAllDoc,
           nb::sig("def call_all(self, key: str, data: object = None, timeout: float | None = "
                   "..., *, mode: str = 'view_or_copy', as_: typing.Any = None, device: object = "
                   "None) -> CallAllReplies"))
      .def(
          "call_stats", [](const NodeHandle& self) { return self.node->call_stats(); },
          "Counts of its calls.")
      .def_prop_ro(
          "name", [](const NodeHandle& self) { return self.node->name(); },
          "The name by which subscribers know its publishers.")
      .def_prop_ro(
          "domain", [](const NodeHandle& self) { return self.node->domain(); },
          "The domain whose nodes it finds.")
      .def_prop_ro(
          "address", [](const NodeHandle& self) { return self.node->address(); },
          "Where it listens, with the port that was chosen; '': nowhere.")
      .def_ro("context", &NodeHandle::context, "The Context it was made from.",
              nb::sig("def context(self) -> Context"))
      .def(
          "nodes", [](const NodeHandle& self) { return self.node->nodes(); },
          "Names of the nodes of its domain that are known, its own among them, sorted.",
          nb::sig("def nodes(self) -> list[str]"))
      .def(
          "publishers", [](const NodeHandle& self) { return self.node->publishers(); },
          "The publishers of its domain that discovery has found, sorted by key and node: those\n"
          "that this node's subscribers take, or after survey() all of them.",
          nb::sig("def publishers(self) -> list[EntityInfo]"))
      .def(
          "subscribers", [](const NodeHandle& self) { return self.node->subscribers(); },
          "The same of subscribers.", nb::sig("def subscribers(self) -> list[EntityInfo]"))
      .def(
          "responders", [](const NodeHandle& self) { return self.node->responders(); },
          "The same of responders.", nb::sig("def responders(self) -> list[EntityInfo]"))
      .def(
          "survey",
          [](nb::object self, nb::object timeout) {
            const auto node = nb::cast<const NodeHandle&>(self).node;
            unwrap(wait_beside(until(self, timeout),
                               [node](Deadline deadline) { return node->survey(deadline); }));
          },
          nb::arg("timeout").none() = nb::ellipsis(),
          "From now on nodes() tells of the whole domain, and not only of what this node\n"
          "needs; returns when all that is there was told. Raises Timeout.\n\n"
          "timeout: seconds; None: for ever; left out: as the Context says.",
          nb::sig("def survey(self, timeout: float | None = ...) -> None"))
      .def("events", events_of_node,
           "The events of this node from now on: publishers that appeared and\n"
           "ended, lost samples, peers that cannot be reached, names that two nodes have.",
           nb::sig("def events(self) -> FabricEvents"))
      .def(
          "peer_stats",
          [](const NodeHandle& self, const std::string& name) {
            return unwrap(self.node->peer_stats(name));
          },
          nb::arg("name"), "Counters of the links to a node. Raises Unreachable: there is none.",
          nb::sig("def peer_stats(self, name: str) -> PeerStats"))
      .def(
          "has_plain_subscribers",
          [](nb::object self, const std::string& keys, nb::object timeout) {
            const auto node = nb::cast<const NodeHandle&>(self).node;
            return unwrap(wait_beside(until(self, timeout), [node, keys](Deadline deadline) {
              return node->has_plain_subscribers(keys, deadline);
            }));
          },
          nb::arg("keys"), nb::arg("timeout").none() = nb::ellipsis(),
          "Does somebody subscribe to one of these keys by Zenoh: a plain peer, or a\n"
          "subscriber that hears plain ones? Raises NotSupported without Zenoh, Timeout.\n\n"
          "timeout: seconds; None: for ever; left out: as the Context says.",
          nb::sig("def has_plain_subscribers(self, keys: str, timeout: float | None = ...) -> "
                  "bool"))
      .def("close", close,
           "Withdraws what it announces and looks for nobody any more. Calls end; publishers,\n"
           "subscribers and responders keep the channels that they have. May be repeated.",
           nb::sig("def close(self) -> None"))
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Node"))
      .def(
          "__exit__", [](const NodeHandle& self, nb::args) { close(self); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("__repr__", [](const NodeHandle& self) {
        const std::string& address = self.node->address();
        return "tendon.Node('" + self.node->name() + "' in domain '" + self.node->domain() +
               (address.empty() ? "')" : "' at " + address + ")");
      });
}

}  // namespace tendon::python
