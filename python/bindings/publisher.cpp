// SPDX-License-Identifier: Apache-2.0
#include "publisher.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "arrays_in.hpp"
#include "background.hpp"
#include "bindings.hpp"
#include "choices.hpp"
#include "dicts.hpp"
#include "gpu_order.hpp"
#include "loan.hpp"
#include "node.hpp"
#include "schema.hpp"

namespace tendon::python {
namespace {

constexpr const char* kClassDoc =
    "Publishes samples on one key, to any number of subscribers that nobody has to\n"
    "know; made by Node.publisher().\n\n"
    "It keeps the newest samples, its history. Safe from every thread. A `with`\n"
    "block closes it, or leaves at once when an exception leaves the block.\n\n"
    "timeout, of each call that takes one: seconds; None: for ever; left out: as its\n"
    "Context says, if the call says nothing else.";

/// Publishes in one call, not in slices: each slice would publish the sample once more. Looks at
/// signals while it waits: `publish` gets the function that does so.
template <class Publish>
Published publish_once(Publish publish) {
  bool interrupted = false;
  auto published = [&] {
    WithoutGil unlocked;
    const auto go_on = [&] {
      interrupted = unlocked.with_gil([] { return PyErr_CheckSignals() != 0; });
      return !interrupted;
    };
    return publish(std::ref(go_on));
  }();
  if (interrupted) throw nb::python_error();
  return unwrap(std::move(published));
}

/// nullopt: the timeout was left out.
std::optional<Deadline> deadline_of_publish(nb::handle timeout) {
  if (timeout.ptr() == Py_Ellipsis) return std::nullopt;
  return deadline_of(timeout, 0);
}

/// Publishes a sample without tensors; with 'drop_oldest' it does not wait.
Published publish_bytes(const PublisherHandle& self, const std::optional<Deadline>& deadline,
                        Bytes sample) {
  const bool waits = self.overflow == Overflow::block;
  const Deadline until = !waits ? Deadline::now() : deadline ? *deadline : Deadline(self.block_for);
  return publish_once([&](const detail::SignalledPublish::GoOn& go_on) {
    return detail::SignalledPublish::publish(*self.publisher, sample, until, go_on);
  });
}

Published publish_batch(const PublisherHandle& self, const std::optional<Deadline>& deadline,
                        const TensorDict& batch, const std::optional<Stream>& wanted) {
  const OnStream on{handle_of(stream_for(batch, wanted))};
  const auto bare = with_bare_loans(batch);
  return publish_once([&](const detail::SignalledPublish::GoOn& go_on) {
    return detail::SignalledPublish::publish(*self.publisher, bare ? *bare : batch, deadline, on,
                                             go_on);
  });
}

Published publish_loan(const PublisherHandle& self, const std::optional<Deadline>& deadline,
                       const LoanHandle& handle, const std::optional<Stream>& wanted) {
  const OnStream on{handle_of(stream_for(handle, wanted, "publisher.publish"))};
  const LeavingLoan leaving(handle.loan);
  return publish_once(leaving.by([&](Loan&& loan, const detail::SignalledPublish::GoOn& go_on) {
    return detail::SignalledPublish::publish(*self.publisher, std::move(loan), deadline, on, go_on);
  }));
}

Published publish(const PublisherHandle& self, nb::object data, nb::object timeout,
                  nb::object on_stream) {
  const auto deadline = deadline_of_publish(timeout);
  const auto wanted = stream_from(on_stream);
  const GapsAreCopied contiguous;
  release_left_over();
  if (SameAgain::may_know(data)) {
    auto same = self.same_again != nullptr ? std::exchange(self.same_again, nullptr)
                                           : share(std::make_unique<SameAgain>());
    same->take(data);
    Published published = publish_batch(self, deadline, same->batch(), wanted);
    same->let_go();
    self.same_again = std::move(same);
    return published;
  }
  if (nb::isinstance<LoanHandle>(data)) {
    return publish_loan(self, deadline, nb::cast<const LoanHandle&>(data), wanted);
  }
  if (const auto bytes = bytes_from(data)) {
    refuse_stream(data, wanted);
    return publish_bytes(self, deadline, bytes->bytes());
  }
  return publish_batch(self, deadline, dict_from(data), wanted);
}

LoanHandle loan(const PublisherHandle& self, nb::object schema, nb::object timeout,
                nb::object device, nb::object on_stream) {
  const auto wanted = schema_from(schema);
  const LoanOptions options = loan_options_from(device, on_stream);
  const Deadline deadline = until(self.node, timeout);
  const auto publisher = self.publisher;
  // A loan in host memory never waits.
  if (options.device == cpu())
    return make_loan(unwrap(without_gil([&] { return publisher->loan(wanted); })), options);
  return make_loan(
      unwrap(wait_in_slices(
          deadline, [&](Deadline slice) { return publisher->loan(wanted, options, slice); })),
      options);
}

void wait_for_subscribers(const PublisherHandle& self, std::size_t count, nb::object timeout) {
  const auto publisher = self.publisher;
  unwrap(wait_in_slices(until(self.node, timeout), [&](Deadline slice) {
    return publisher->wait_for_subscribers(count, slice);
  }));
}

/// Not in slices: the first expired slice would end the channels.
Result<void> close_until(const PublisherHandle& self, Deadline deadline) {
  release_left_over();
  return wait_beside(deadline,
                     [publisher = self.publisher](Deadline end) { return publisher->close(end); });
}

void leave(const PublisherHandle& self, nb::object type, nb::object /*value*/,
           nb::object /*traceback*/) {
  if (!type.is_none()) {
    (void)close_until(self, Deadline::now());  // subscribers that lag hear what they miss
    return;
  }
  unwrap(close_until(self, until(self.node, nb::ellipsis())));
}

std::chrono::milliseconds block_time_from(nb::handle block_for) {
  if (block_for.is_none()) return std::chrono::milliseconds::max();
  if (PyBool_Check(block_for.ptr()) ||
      PyIndex_Check(block_for.ptr()) + PyFloat_Check(block_for.ptr()) == 0)
    raise_type_error("block_for is a " + quoted_type(block_for) +
                     "; legal are seconds as a number, or None to wait for ever");
  const double seconds = PyFloat_AsDouble(block_for.ptr());
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return duration_of(seconds, "block_for");
}

void bind_published(nb::module_& module) {
  nb::class_<Published>(module, "Published", "What became of a sample.")
      .def_ro("sequence", &Published::sequence, "1, 2, 3, ...")
      .def_ro("shown", &Published::shown,
              "Subscribers that have it, or to which it is on its way; of a publisher with\n"
              "plain_peers='bare': 1 where Zenoh took it and says that somebody subscribes.")
      .def_prop_ro(
          "lagging", [](const Published& self) { return self.lagging; },
          "The names of subscribers that are behind: they see it later, or miss it in a gap.",
          nb::sig("def lagging(self) -> list[str]"))
      .def("__repr__", [](const Published& self) {
        std::string text = "tendon.Published(sequence " + std::to_string(self.sequence) +
                           ", shown to " + std::to_string(self.shown);
        for (std::string_view separator = ", lagging: "; const std::string& name : self.lagging)
          text.append(std::exchange(separator, ", ")).append(name);
        return text + ")";
      });
}

void bind_stats(nb::module_& module) {
  nb::class_<PublisherStats>(module, "PublisherStats", "What a publisher did since it was made.")
      .def_ro("published", &PublisherStats::published, "Samples.")
      .def_ro("history_trimmed", &PublisherStats::history_trimmed,
              "Samples given up early, for want of the Context's publish_bytes.")
      .def_ro("thinned", &PublisherStats::thinned,
              "Samples left out because of a max_hz, of all subscribers.")
      .def_ro("subscribers", &PublisherStats::subscribers, "Now.")
      .def_prop_ro(
          "lagging", [](const PublisherStats& self) { return self.lagging; },
          "Subscribers that are behind now, by name.", nb::sig("def lagging(self) -> list[str]"))
      .def_ro("plain_put", &PublisherStats::plain_put, "Samples put for plain Zenoh peers.")
      .def_ro("plain_dropped", &PublisherStats::plain_dropped,
              "Samples not put while somebody subscribed by Zenoh: a newer one came, they\n"
              "were larger than plain_bytes, or Zenoh did not take them.")
      .def_ro("copied_over_share", &PublisherStats::copied_over_share,
              "Samples copied for one subscriber, because it, or all together, have as much of\n"
              "the Context's publish_bytes as they may: what they keep, and what waits for them.")
      .def_ro("copies_d2h", &PublisherStats::copies_d2h,
              "Samples copied from a GPU to host memory, to be published.")
      .def_ro("bytes_d2h", &PublisherStats::bytes_d2h, "Their bytes there.")
      .def_ro("copies_d2d", &PublisherStats::copies_d2d,
              "Samples copied on a GPU, for subscribers that read there.")
      .def_ro("bytes_d2d", &PublisherStats::bytes_d2d, "Their bytes there.");
}

}  // namespace

PublisherHandle declare_publisher(nb::object node, const std::string& key, std::uint32_t history,
                                  const std::string& overflow, const std::string& priority,
                                  nb::object schema, const std::string& plain_peers,
                                  std::uint64_t plain_bytes, const std::string& encoding,
                                  nb::object block_for) {
  const PublisherOptions options{.qos = {.history = keep_last(history),
                                         .overflow = word_from<Overflow>("overflow", overflow),
                                         .priority = word_from<Priority>("priority", priority)},
                                 .schema = schema.is_none() ? nullptr : schema_from(schema),
                                 .plain_peers = word_from<PlainPeers>("plain_peers", plain_peers),
                                 .plain_bytes = plain_bytes,
                                 .encoding = encoding,
                                 .block_for = block_time_from(block_for)};
  const auto shared = nb::cast<const NodeHandle&>(node).node;
  auto declared = without_gil([&] { return Publisher::declare(*shared, key, options); });
  return {std::move(node), ends_without_gil(unwrap(std::move(declared))), options.qos.overflow,
          options.block_for};
}

void bind_publisher(nb::module_& module) {
  bind_published(module);
  bind_stats(module);
  nb::class_<PublisherHandle>(module, "Publisher", kClassDoc)
      .def("publish", publish, nb::arg("data").none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::kw_only(), nb::arg("stream").none() = nb::none(),
           "Publishes a mapping of arrays and values, a Loan of this publisher, or of its\n"
           "Context on a GPU, or bytes; the arguments may be reused.\n\n"
           "Arrays may lie in host memory and on one GPU, which is waited for until the\n"
           "timeout. stream: that on which those of the GPU are read, as Pipe.send() has it.\n\n"
           "timeout: seconds; by default block_for. With overflow='block' it waits for\n"
           "those that are behind, then succeeds although some lag; one that let a timeout\n"
           "pass is not waited for again until it took something. A subscriber of the same\n"
           "Context from which only the calling thread receives, or nobody yet, lags at\n"
           "once. With 'drop_oldest' it waits for no subscriber.\n\n"
           "Raises ResourceExhausted, which names who holds the memory; SchemaMismatch,\n"
           "MessageTooLarge, WrongLink, PipeClosed; for arrays on a GPU Timeout (nothing was\n"
           "published), UnsupportedDevice, NotContiguous, DeviceLost.",
           nb::sig("def publish(self, data: object, timeout: float | None = ..., *, stream: object "
                   "= None) -> Published"))
      .def("loan", loan, nb::arg("schema").none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::kw_only(), nb::arg("device").none() = nb::none(),
           nb::arg("stream").none() = nb::none(), nb::keep_alive<0, 5>(),
           "Memory in which subscribers can read: fill it and publish() it.\n\n"
           "schema: a Schema, or a mapping from names to (dtype, shape [elements]).\n"
           "timeout: seconds for which it waits for room on a GPU; in host memory it never waits.\n"
           "device, stream: as Pipe.loan() has them.\n\n"
           "Raises ResourceExhausted (who holds the memory), SchemaMismatch, MessageTooLarge,\n"
           "NotSupported, PipeClosed; for a GPU what Pipe.loan() does.",
           nb::sig("def loan(self, schema: object, timeout: float | None = ..., *, device: object "
                   "= None, stream: object = None) -> Loan"))
      .def("wait_for_subscribers", wait_for_subscribers, nb::arg("count"),
           nb::arg("timeout").none() = nb::ellipsis(),
           "Returns when so many subscribers are there that were shown the history. All plain\n"
           "Zenoh peers together are one of them; while a subscriber of Tendon listens to\n"
           "plain peers on the key they are not counted, because Zenoh cannot tell them apart.",
           nb::sig("def wait_for_subscribers(self, count: int, timeout: float | None = ...) -> "
                   "None"))
      .def(
          "stats", [](const PublisherHandle& self) { return self.publisher->stats(); },
          "Counts of samples and subscribers.")
      .def(
          "close",
          [](const PublisherHandle& self, nb::object timeout) {
            unwrap(close_until(self, until(self.node, timeout)));
          },
          nb::arg("timeout").none() = nb::ellipsis(),
          "Waits for those that are behind, and until Zenoh took what is put for plain\n"
          "peers, then ends. Timeout names those that were not\n"
          "shown everything: they are ended too, and told what they miss.",
          nb::sig("def close(self, timeout: float | None = ...) -> None"))
      .def_prop_ro(
          "key", [](const PublisherHandle& self) { return self.publisher->key(); },
          "On which it publishes.")
      .def_ro("node", &PublisherHandle::node, "The Node it was made from.",
              nb::sig("def node(self) -> Node"))
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Publisher"))
      .def("__exit__", leave, nb::arg("type").none(), nb::arg("value").none(),
           nb::arg("traceback").none(),
           nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"))
      .def("__repr__", [](const PublisherHandle& self) {
        return "tendon.Publisher('" + self.publisher->key() + "')";
      });
}

}  // namespace tendon::python
