// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <stop_token>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>
#include <vector>

#include "bindings.hpp"
#include "choices.hpp"
#include "core/process_wide.hpp"
#include "events.hpp"
#include "first_use.hpp"
#include "listener.hpp"
#include "pipe.hpp"
#include "security.hpp"
#include "wait.hpp"

namespace tendon::python {
namespace {

constexpr const char* kContextDoc =
    "The root object: identity, memory, progress, links to peers.\n\n"
    "name: said to peers, names this process in their errors.\n"
    "transport: 'automatic', 'shm' (shared memory or an error) or 'tcp'.\n"
    "wait_policy: 'latency' (spins up to a millisecond), 'balanced', 'blocking'.\n"
    "link_cap_bytes, pool_cap_bytes, publish_bytes: limits on memory under way to\n"
    "one peer, for what arrives over sockets, and for what is published [bytes]; 0:\n"
    "the smaller of 1 GiB and a quarter of the memory limit.\n"
    "device_cap_bytes: the same of each GPU, for tensors that arrive there [bytes]; 0:\n"
    "1 GiB.\n"
    "device_path: 'automatic' (arrays on a GPU that are sent stay there where the peer\n"
    "can read them), 'staged' (through host memory) or 'direct_only' (NotDirect\n"
    "where they cannot stay there).\n"
    "streams: bulk connections of a tcp link, 1 to 16.\n"
    "linger: how long its end waits for unsent bytes [s].\n"
    "lease: silence after which a peer on another host is lost [s].\n"
    "timeout: what a call waits at most that is given no timeout [s]; None: for\n"
    "ever; left out: 30, and 1800 for collectives of a group.\n\n"
    "Safe from every thread. In a forked child every call raises Forked: make\n"
    "another Context there.";

/// The open Contexts, which the interpreter closes before it ends.
class Open {
 public:
  void add(const std::shared_ptr<Context>& context) {
    const detail::Lock lock(mutex_);
    std::erase_if(contexts_, [](const auto& weak) { return weak.expired(); });
    contexts_.push_back(context);
  }
  std::vector<std::shared_ptr<Context>> all() {
    const detail::Lock lock(mutex_);
    std::vector<std::shared_ptr<Context>> found;
    for (const auto& weak : contexts_)
      if (auto context = weak.lock()) found.push_back(std::move(context));
    return found;
  }

 private:
  detail::Mutex mutex_;
  std::vector<std::weak_ptr<Context>> contexts_ TENDON_GUARDED_BY(mutex_);
};

// Per process: a forked child does not close the Contexts of its parent.
Open& open_contexts() {
  static constinit detail::PerProcess<Open> open;
  return open.get();
}

void make_context(ContextHandle* self, const std::string& name, const std::string& transport,
                  const std::string& wait_policy, std::uint64_t link_cap_bytes,
                  std::uint64_t pool_cap_bytes, std::uint32_t streams, double linger, double lease,
                  nb::object timeout, std::uint64_t publish_bytes, std::uint64_t device_cap_bytes,
                  const std::string& device_path) {
  ContextOptions options;
  options.name = name;
  options.transport = word_from<Transport>("transport", transport);
  options.wait_policy = word_from<WaitPolicy>("wait_policy", wait_policy);
  options.link_cap_bytes = link_cap_bytes;
  options.pool_cap_bytes = pool_cap_bytes;
  options.publish_bytes = publish_bytes;
  options.device_cap_bytes = device_cap_bytes;
  options.device_path = word_from<DevicePath>("device_path", device_path);
  options.streams = streams;
  options.linger = duration_of(linger, "linger");
  options.lease = duration_of(lease, "lease");
  if (!timeout.is(nb::ellipsis())) (void)deadline_of(timeout, 0);  // refuses an illegal timeout
  prepare_conversions();
  new (self) ContextHandle();
  if (!timeout.is(nb::ellipsis())) {
    self->timeout_s =
        timeout.is_none() ? std::numeric_limits<double>::infinity() : nb::cast<double>(timeout);
    self->collective_timeout_s = self->timeout_s;
  }
  self->context = ends_without_gil(unwrap(Context::create(std::move(options))));
  open_contexts().add(self->context);
  nb::module_::import_("tendon._fork").attr("close_all_at_end")();
}

PipeHandle connect(nb::object self, const std::string& address, nb::object timeout,
                   const std::string& profile, const nb::object& security, bool wait) {
  return connect_pipe(std::move(self), address, std::move(timeout),
                      security_from(profile, security), wait);
}

/// Makes a coroutine: the call waits on a thread of its own and stops when the coroutine is
/// cancelled.
nb::object connect_async(nb::object self, const std::string& address, nb::object timeout,
                         const std::string& profile, const nb::object& given, bool wait) {
  (void)deadline_of(timeout, 0);  // reports a mistake before the await
  const Security security = security_from(profile, given);
  const std::stop_source stop;
  const auto call = [=] { return connect_pipe(self, address, timeout, security, wait, stop); };
  const auto request = [=] {
    const WithoutGil unlocked;
    std::stop_source(stop).request_stop();
  };
  return nb::module_::import_("tendon._asyncio")
      .attr("beside")(nb::cpp_function(call), nb::cpp_function(request));
}

void close_all() {
  release_left_over();
  const WithoutGil unlocked;
  for (const auto& context : open_contexts().all()) {
    if (const auto closed = context->close(std::chrono::seconds(2)); !closed)
      log(LogLevel::warn, "context.close", closed.error().detail);
  }
}

}  // namespace

nb::object context_or_default(nb::object context) {
  if (nb::isinstance<ContextHandle>(context)) return context;
  if (!context.is_none()) {
    raise_type_error("context is a " + quoted_type(context) +
                     "; legal are a tendon.Context and None (that of the module)");
  }
  return nb::module_::import_("tendon._default").attr("default_context")();
}

double default_timeout_s(nb::handle context) {
  return nb::cast<const ContextHandle&>(context).timeout_s;
}

double collective_timeout_s(nb::handle context) {
  return nb::cast<const ContextHandle&>(context).collective_timeout_s;
}

void bind_context(nb::module_& module) {
  nb::class_<ContextHandle>(module, "Context", kContextDoc, nb::is_weak_referenceable())
      .def("__init__", make_context, nb::arg("name") = "", nb::kw_only(),
           nb::arg("transport") = "automatic", nb::arg("wait_policy") = "balanced",
           nb::arg("link_cap_bytes") = 0, nb::arg("pool_cap_bytes") = 0, nb::arg("streams") = 1,
           nb::arg("linger") = 2.0, nb::arg("lease") = 3.0,
           nb::arg("timeout").none() = nb::ellipsis(), nb::arg("publish_bytes") = 0,
           nb::arg("device_cap_bytes") = 0, nb::arg("device_path") = "automatic",
           nb::sig("def __init__(self, name: str = '', *, transport: str = 'automatic', "
                   "wait_policy: str = 'balanced', link_cap_bytes: int = 0, pool_cap_bytes: int = "
                   "0, streams: int = 1, linger: float = 2.0, lease: float = 3.0, timeout: float | "
                   "None = ..., publish_bytes: int = 0, device_cap_bytes: int = 0, device_path: "
                   "str = 'automatic') -> None"))
      .def("connect", connect, nb::arg("address"), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("profile") = "local", nb::kw_only(), nb::arg("security") = nb::none(),
           nb::arg("wait") = true, kConnectDoc,
           nb::sig("def connect(self, address: str, timeout: float | None = ..., profile: str = "
                   "'local', *, security: Security | None = None, wait: bool = True) -> Pipe"))
      .def("aconnect", connect_async, nb::arg("address"),
           nb::arg("timeout").none() = nb::ellipsis(), nb::arg("profile") = "local", nb::kw_only(),
           nb::arg("security") = nb::none(), nb::arg("wait") = true,
           "`pipe = await context.aconnect(address)`.",
           nb::sig("def aconnect(self, address: str, timeout: float | None = ..., profile: str = "
                   "'local', *, security: Security | None = None, wait: bool = True) -> "
                   "collections.abc.Coroutine[typing.Any, "
                   "typing.Any, Pipe]"))
      .def("listen", bind_listener_to, nb::arg("address"), nb::arg("profile") = "local",
           nb::kw_only(), nb::arg("security") = nb::none(), kListenDoc,
           nb::sig("def listen(self, address: str, profile: str = 'local', *, security: Security | "
                   "None = None) -> Listener"))
      .def(
          "close",
          [](ContextHandle& self, nb::object timeout) {
            const auto context = self.context;
            unwrap(wait_in_slices(deadline_of(timeout, self.timeout_s),
                                  [&](Deadline slice) { return context->close(slice); }));
          },
          nb::arg("timeout").none() = nb::ellipsis(),
          "Waits for unsent bytes and says goodbye to every peer; Timeout if not\n"
          "everything could be sent. Later calls of its pipes raise ContextClosed;\n"
          "arrays that were received stay.",
          nb::sig("def close(self, timeout: float | None = ...) -> None"))
      .def_prop_ro(
          "name", [](const ContextHandle& self) { return self.context->name(); }, "Said to peers.")
      .def_prop_ro(
          "id", [](const ContextHandle& self) { return self.context->id().to_string(); },
          "The random number of this context, 32 hexadecimal digits.")
      .def_prop_ro(
          "pool", [](const ContextHandle& self) { return self.context->pool(); },
          "Memory for what arrives over sockets.")
      .def(
          "members",
          [](const ContextHandle& self) {
            nb::list peers;
            for (PeerIdentity& peer : self.context->members())
              peers.append(nb::cast(std::move(peer)));
            return peers;
          },
          "The peers it has links to now.", nb::sig("def members(self) -> list[Peer]"))
      .def("events", events_of_context, "What happens to its peers from now on.",
           nb::sig("def events(self) -> MemberEvents"))
      .def(
          "describe", [](const ContextHandle& self) { return self.context->describe(); },
          "Links, their paths and reasons, slots held and free: text for people.")
      .def(
          "fileno", [](const ContextHandle& self) { return self.context->fd(); },
          "A descriptor for an event loop, readable when a future is done.")
      .def("_arm", [](ContextHandle& self) { return self.context->arm(); })
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Context"))
      .def(
          "__exit__", [](nb::object self, nb::args) { self.attr("close")(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("__repr__", [](const ContextHandle& self) {
        return "tendon.Context(name='" + self.context->name() + "')";
      });
  module.def("_close_all", close_all,
             "Closes every context; the package calls it when the interpreter ends.");
}

}  // namespace tendon::python
