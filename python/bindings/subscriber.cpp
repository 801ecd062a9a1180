// SPDX-License-Identifier: Apache-2.0
#include "subscriber.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "bindings.hpp"
#include "choices.hpp"
#include "conversion.hpp"
#include "copies.hpp"
#include "dicts.hpp"
#include "events.hpp"
#include "future.hpp"
#include "gpu_order.hpp"
#include "node.hpp"
#include "sample.hpp"
#include "schema.hpp"
#include "tensor/on_cpu.hpp"
#include "wait.hpp"

namespace tendon::python {
namespace {

constexpr const char* kClassDoc =
    "Receives what publishers of a set of keys publish, those too that come later;\n"
    "made by Node.subscriber().\n\n"
    "`for sample in subscriber` waits for the next one without end: a publisher\n"
    "that goes is no error, and ends=True delivers its end. Samples of one publisher\n"
    "come in their order, none twice; what does not come is in a gap. One thread or\n"
    "task may receive at a time; a second gets Busy. `async for` and\n"
    "`await subscriber.arecv()` let an event loop go on meanwhile. Use it in a `with`\n"
    "block, or close() it.\n\n"
    "timeout, of each call that takes one: seconds; None: for ever; left out: as its\n"
    "Context says, if the call says nothing else.";

std::optional<std::chrono::nanoseconds> nanoseconds_of(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  // Longer than any sample's age. NaN is read as 0.
  constexpr double kMost = 3e9;
  if (!(*seconds > 0)) return std::chrono::nanoseconds(0);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::fmin(*seconds, kMost) * 1e9));
}

/// Copies the tensors in host memory; those on a GPU belong to the receiver already.
TensorDict writable(const TensorDict& batch) {
  if (detail::check_on_cpu(batch, "subscriber.recv")) return private_copy(batch);
  TensorDict copy = batch;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const Tensor leaf = batch.leaf(i);
    const SchemaLeaf& entry = batch.schema()->leaves()[i];
    if (leaf.device() == cpu())
      unwrap(copy.try_set(entry.path, private_copy(leaf), entry.batching));
  }
  return copy;
}

Sample writable(const Sample& taken) {
  Sample copy = taken;
  if (taken.tensors) copy.tensors = writable(*taken.tensors);
  copy.bytes = private_copy(taken.bytes);
  return copy;
}

/// The form in which a sample is requested.
struct Wanted {
  bool copy;
  nb::object as;
};

Wanted wanted_from(const std::string& mode, nb::object conversion) {
  return {wants_copy_from(mode), std::move(conversion)};
}

SampleHandle made_or_given_back(const std::shared_ptr<Subscriber>& subscriber, Sample sample,
                                const Wanted& wanted) {
  if (!wanted.copy && wanted.as.is_none()) return make_sample(std::move(sample), wanted.as);
  return convert_or_give_back(
      sample,
      [&](const Sample& taken) {
        return make_sample(wanted.copy ? writable(taken) : taken, wanted.as);
      },
      [&](const Sample& taken) { subscriber->give_back(taken); });
}

SampleHandle recv(const SubscriberHandle& self, nb::object timeout, const std::string& mode,
                  nb::object as, nb::object device, nb::object on_stream) {
  const Wanted wanted = wanted_from(mode, gpu_conversion_from(as, device));
  const auto stream = stream_from(on_stream);
  const DeviceTarget target{
      .device = device_from(device), .stream = handle_of(stream), .device_mode = RecvMode::copy};
  const auto subscriber = self.subscriber;
  const auto order = [&](Sample& taken) {
    if (taken.tensors) set_order(stream, *taken.tensors);
  };
  auto sample = wait_in_slices(
      until(self.node, timeout), [&](Deadline slice) { return subscriber->recv(target, slice); },
      [&](Result<Sample> taken) {
        order(*taken);
        subscriber->give_back(*std::move(taken));
      });
  if (sample) order(*sample);
  return made_or_given_back(subscriber, unwrap(std::move(sample)), wanted);
}

std::unique_ptr<Future> recv_async(const SubscriberHandle& self, nb::object timeout,
                                   const std::string& mode, nb::object as, nb::object device) {
  const Wanted wanted = wanted_from(mode, conversion_from(as, device));
  const auto subscriber = self.subscriber;
  return make_future(
      nb::cast<const NodeHandle&>(self.node).context, timeout,
      without_gil([&] { return subscriber->recv_async(); }),
      [wanted, subscriber](Sample sample) {
        return nb::cast(made_or_given_back(subscriber, std::move(sample), wanted));
      },
      "subscriber.recv",
      [subscriber] { return "nothing came on " + subscriber->keys() + " before the deadline"; });
}

nb::object each(nb::object self, nb::object timeout, const std::string& mode, nb::object as,
                nb::object device) {
  (void)wanted_from(mode, gpu_conversion_from(as, device));
  nb::dict arguments;
  arguments["mode"] = nb::cast(mode);
  arguments["as_"] = as;
  arguments["device"] = device;
  return each_of(std::move(self), std::move(timeout), std::move(arguments));
}

void wait_for_publishers(const SubscriberHandle& self, std::size_t count, nb::object timeout) {
  const auto subscriber = self.subscriber;
  unwrap(wait_in_slices(until(self.node, timeout), [&](Deadline slice) {
    return subscriber->wait_for_publishers(count, slice);
  }));
}

void close(const SubscriberHandle& self) {
  const auto subscriber = self.subscriber;
  const WithoutGil unlocked;
  subscriber->close();
}

void bind_stats(nb::module_& module) {
  nb::class_<SubscriberStats>(module, "SubscriberStats", "What came since it was made.")
      .def_ro("received", &SubscriberStats::received, "Samples.")
      .def_ro("missed", &SubscriberStats::missed, "Samples, in all gaps.")
      .def_ro("expired", &SubscriberStats::expired, "Samples older than max_age: some of missed.")
      .def_ro("thinned", &SubscriberStats::thinned, "Samples left out because of max_hz.")
      .def_ro("superseded", &SubscriberStats::superseded, "Samples dropped because of newest_only.")
      .def_ro("copied", &SubscriberStats::copied, "Samples copied because max_held were kept.")
      .def_ro("schema_mismatches", &SubscriberStats::schema_mismatches,
              "Publishers and samples of another schema.")
      .def_ro("violations", &SubscriberStats::violations, "Channels that their publishers broke.")
      .def_ro("publishers", &SubscriberStats::publishers, "Connected now.")
      .def_ro("plain_received", &SubscriberStats::plain_received,
              "Samples of plain Zenoh peers: some of received.")
      .def_ro("plain_dropped", &SubscriberStats::plain_dropped,
              "Of them, dropped because newer ones came meanwhile.")
      .def_ro("plain_refused", &SubscriberStats::plain_refused,
              "Of them, in another form than plain_content, or too large.")
      .def_ro("plain_deleted", &SubscriberStats::plain_deleted, "Deletes of plain Zenoh peers.")
      .def_ro("undecodable", &SubscriberStats::undecodable,
              "Samples that could not be read: some of missed.")
      .def_ro("ended", &SubscriberStats::ended,
              "Publishers whose samples ended, and were read to the end.")
      .def_ro("copies_h2d", &SubscriberStats::copies_h2d,
              "Samples copied to a GPU, where they lay or were wanted.")
      .def_ro("bytes_h2d", &SubscriberStats::bytes_h2d, "Their bytes there.")
      .def_ro("copies_d2h", &SubscriberStats::copies_d2h,
              "Samples copied to host memory out of the publisher's memory on a GPU.")
      .def_ro("copies_d2d", &SubscriberStats::copies_d2d,
              "Samples copied within the GPU that they came on.")
      .def_ro("bytes_d2d", &SubscriberStats::bytes_d2d, "Their bytes there.");
}

}  // namespace

SubscriberHandle declare_subscriber(nb::object node, const std::string& keys, std::uint32_t window,
                                    std::uint32_t max_held, std::optional<double> max_age,
                                    std::optional<double> max_hz, std::optional<bool> newest_only,
                                    nb::object schema, std::optional<bool> hears_plain,
                                    const std::string& plain_content, bool ends) {
  const SubscriberOptions options{
      .window = window,
      .max_held = max_held,
      .max_age = nanoseconds_of(max_age),
      .max_hz = max_hz,
      .newest_only = newest_only,
      .schema = schema.is_none() ? nullptr : schema_from(schema),
      .hears_plain = hears_plain,
      .plain_content = word_from<PlainContent>("plain_content", plain_content),
      .ends = ends};
  const auto shared = nb::cast<const NodeHandle&>(node).node;
  auto declared = without_gil([&] { return Subscriber::declare(*shared, keys, options); });
  return {std::move(node), ends_without_gil(unwrap(std::move(declared)))};
}

void bind_subscriber(nb::module_& module) {
  bind_stats(module);
  nb::class_<SubscriberHandle>(module, "Subscriber", kClassDoc)
      .def("recv", recv, nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(),
           nb::arg("mode") = kViewOrCopy, nb::arg("as_").none() = nb::none(),
           nb::arg("device").none() = nb::none(), nb::arg("stream").none() = nb::none(),
           "The next Sample.\n\n"
           "mode: 'view_or_copy' (what others read too, read-only, else a copy), or 'copy': its\n"
           "arrays may be written.\n"
           "as_: what its tensors are: torch (the module) for nested dicts of torch tensors,\n"
           "tensordict.TensorDict, or dict.\n"
           "device: where they are to be: 'cpu', 'cuda:0', or a torch.device; None: where the\n"
           "publisher had them.\n"
           "stream: behind whose work they arrive on a GPU, as Pipe.recv() has it.\n\n"
           "Raises Timeout, PipeClosed after close(), Busy; UnsupportedDevice and NotSupported\n"
           "as Pipe.recv(): the sample stays, for a recv with device='cpu'.",
           nb::sig("def recv(self, timeout: float | None = ..., *, mode: str = "
                   "'view_or_copy', as_: typing.Any = None, device: object = None, stream: object "
                   "= None) -> Sample"))
      .def("each", each, nb::arg("timeout").none() = nb::none(), nb::kw_only(),
           nb::arg("mode") = kViewOrCopy, nb::arg("as_").none() = nb::none(),
           nb::arg("device").none() = nb::none(),
           "Iterates as the subscriber does, with what recv() is given:\n"
           "`for sample in subscriber.each(as_=torch)`, and `async for`.\n\n"
           "timeout: of each sample [s]; None: for ever.",
           nb::sig("def each(self, timeout: float | None = None, *, mode: str = 'view_or_copy', "
                   "as_: typing.Any = None, device: object = None) -> Each[Sample]"))
      .def(
          "__iter__", [](nb::object self) { return self; },
          nb::sig("def __iter__(self) -> typing.Iterator[Sample]"))
      .def("__next__",
           [](const SubscriberHandle& self) {
             return recv(self, nb::none(), kViewOrCopy, nb::none(), nb::none(), nb::none());
           })
      .def("irecv", recv_async, nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(),
           nb::arg("mode") = kViewOrCopy, nb::arg("as_").none() = nb::none(),
           nb::arg("device").none() = nb::none(),
           "Starts receiving and returns a Future. Until it is done it is the receiver: a\n"
           "further one gets Busy. It returns host memory: UnsupportedDevice for a sample that\n"
           "lies on a GPU, which stays for recv().",
           nb::sig("def irecv(self, timeout: float | None = ..., *, mode: str = "
                   "'view_or_copy', as_: typing.Any = None, device: object = None) -> "
                   "Future[Sample]"))
      .def("arecv", recv_async, nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(),
           nb::arg("mode") = kViewOrCopy, nb::arg("as_").none() = nb::none(),
           nb::arg("device").none() = nb::none(), "`sample = await subscriber.arecv()`.",
           nb::sig("def arecv(self, timeout: float | None = ..., *, mode: str = "
                   "'view_or_copy', as_: typing.Any = None, device: object = None) -> "
                   "Future[Sample]"))
      .def(
          "__aiter__", [](nb::object self) { return self; },
          nb::sig("def __aiter__(self) -> typing.AsyncIterator[Sample]"))
      .def(
          "__anext__",
          [](const SubscriberHandle& self) {
            return recv_async(self, nb::none(), kViewOrCopy, nb::none(), nb::none());
          },
          nb::sig("def __anext__(self) -> typing.Awaitable[Sample]"))
      .def("wait_for_publishers", wait_for_publishers, nb::arg("count"),
           nb::arg("timeout").none() = nb::ellipsis(),
           "Returns when it is connected to so many publishers.",
           nb::sig("def wait_for_publishers(self, count: int, timeout: float | None = ...) -> "
                   "None"))
      .def(
          "stats", [](const SubscriberHandle& self) { return self.subscriber->stats(); },
          "Counts of samples and publishers.")
      .def("close", close,
           "Ends its channels; what waits there is dropped, samples that were received\n"
           "stay. May be repeated.",
           nb::sig("def close(self) -> None"))
      .def("events", events_of_subscriber,
           "Those of Node.events() that are about this subscriber, from now on: publishers\n"
           "that came and ended, gaps, other schemas.",
           nb::sig("def events(self) -> FabricEvents"))
      .def_prop_ro(
          "entity", [](const SubscriberHandle& self) { return self.subscriber->entity(); },
          "Its number in its Context: FabricEvent.subscriber.")
      .def_prop_ro(
          "keys", [](const SubscriberHandle& self) { return self.subscriber->keys(); },
          "To which it listens, in their canonical form.")
      .def_ro("node", &SubscriberHandle::node, "The Node it was made from.",
              nb::sig("def node(self) -> Node"))
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Subscriber"))
      .def(
          "__exit__", [](const SubscriberHandle& self, nb::args) { close(self); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def(
          "__aenter__", [](nb::object self) { return asyncio_part("enter")(self); },
          nb::sig("def __aenter__(self) -> collections.abc.Coroutine[typing.Any, typing.Any, "
                  "Subscriber]"))
      .def(
          "__aexit__",
          [](nb::object self, nb::args) { return asyncio_part("leave_at_once")(self); },
          nb::sig("def __aexit__(self, *exception: object) -> "
                  "collections.abc.Coroutine[typing.Any, typing.Any, None]"))
      .def("__repr__", [](const SubscriberHandle& self) {
        return "tendon.Subscriber('" + self.subscriber->keys() + "')";
      });
}

}  // namespace tendon::python
