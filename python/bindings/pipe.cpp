// SPDX-License-Identifier: Apache-2.0
#include "pipe.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <optional>
#include <sstream>
#include <tendon/tensor/path.hpp>
#include <unordered_map>

#include "arrays_in.hpp"
#include "arrays_out.hpp"
#include "background.hpp"
#include "bindings.hpp"
#include "choices.hpp"
#include "conversion.hpp"
#include "dicts.hpp"
#include "first_use.hpp"
#include "future.hpp"
#include "gpu_order.hpp"
#include "loan.hpp"
#include "schema.hpp"
#include "tensor/on_cpu.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

constexpr const char* kPipeDoc =
    "An ordered stream of batches and messages to and from one peer.\n\n"
    "`for batch in pipe` reads to the end of the stream. A `with` block closes\n"
    "the pipe, or cancels it when an exception leaves the block. One thread may\n"
    "send and one receive at a time; a third gets Busy. The GIL is released\n"
    "while it waits, and Ctrl-C ends a wait.\n\n"
    "timeout is in seconds, None waits for ever, 0 not at all; left out, it is\n"
    "the context's. After Timeout nothing was sent or taken, and the pipe goes on.";

Deadline until(const PipeHandle& self, nb::handle timeout) {
  return deadline_of(timeout, default_timeout_s(self.context));
}

/// Refuses tag and header for a batch: they belong to raw bytes, and no argument is dropped
/// silently.
void refuse_tag_and_header(nb::handle data, std::uint32_t tag, const nb::bytes& header) {
  if (tag == 0 && header.size() == 0) return;
  raise_value_error(std::string(tag != 0 ? "tag" : "header") +
                    " is given, and a batch has none; legal is raw bytes with them, not a " +
                    quoted_type(data) + ": a number or text of a batch is an entry of it");
}

/// Returns the function that sends a batch on its stream, as the sending thread names it.
auto sender_of(const std::shared_ptr<Pipe>& pipe, const std::optional<Stream>& stream) {
  return [pipe, stream](const TensorDict& batch, Deadline end) {
    const auto bare = with_bare_loans(batch);
    return pipe->send(bare ? *bare : batch, end, {.stream = handle_of(stream)});
  };
}

void send_loan(const std::shared_ptr<Pipe>& pipe, const LoanHandle& handle,
               const std::optional<Stream>& wanted, Deadline deadline) {
  const auto stream = stream_for(handle, wanted, "pipe.send");
  // A loan in host memory is never copied.
  const std::uint64_t size_bytes = stream ? handle.loan->dict().size_bytes() : 0;
  const LeavingLoan leaving(handle.loan);
  send_with(deadline, size_bytes, leaving.by([pipe, stream](Loan&& loan, Deadline end) {
    return pipe->send(std::move(loan), end, {.stream = handle_of(stream)});
  }));
}

void send(const PipeHandle& self, nb::object data, nb::object timeout, std::uint32_t tag,
          nb::bytes header, nb::object on_stream) {
  const Deadline deadline = until(self, timeout);
  const auto pipe = self.pipe;
  const auto wanted = stream_from(on_stream);
  const GapsAreCopied contiguous;
  if (SameAgain::may_know(data)) {
    refuse_tag_and_header(data, tag, header);
    auto same = self.same_again != nullptr ? std::exchange(self.same_again, nullptr)
                                           : share(std::make_unique<SameAgain>());
    same->take(data);
    // Shares the notes only with a call that continues after Ctrl-C; an exception then skips the
    // rest.
    send_with(deadline, same->batch().size_bytes(),
              [send = sender_of(pipe, stream_for(same->batch(), wanted)), same](Deadline end) {
                return send(same->batch(), end);
              });
    same->let_go();
    self.same_again = std::move(same);
    return;
  }
  if (nb::isinstance<LoanHandle>(data)) {
    refuse_tag_and_header(data, tag, header);
    return send_loan(pipe, nb::cast<const LoanHandle&>(data), wanted, deadline);
  }
  if (const auto bytes = bytes_from(data)) {
    refuse_stream(data, wanted);
    return send_with(deadline, bytes->size_bytes(),
                     [pipe, bytes = *bytes, tag,
                      header = std::string(header.c_str(), header.size())](Deadline end) {
                       return pipe->send(bytes.bytes(), {.tag = tag, .header = as_bytes(header)},
                                         end);
                     });
  }
  refuse_tag_and_header(data, tag, header);
  TensorDict batch = dict_from(data);
  const std::uint64_t size_bytes = batch.size_bytes();
  const auto send = sender_of(pipe, stream_for(batch, wanted));  // before the batch is moved
  send_with(deadline, size_bytes,
            [send, batch = std::move(batch)](Deadline end) { return send(batch, end); });
}

std::unique_ptr<Future> send_async(const PipeHandle& self, nb::object data, nb::object timeout,
                                   std::uint32_t tag, nb::bytes header, nb::object on_stream) {
  const auto pipe = self.pipe;
  const auto wanted = stream_from(on_stream);
  const GapsAreCopied contiguous;
  const auto start = [&]() -> Completion<void> {
    if (nb::isinstance<LoanHandle>(data)) {
      refuse_tag_and_header(data, tag, header);
      const auto& handle = nb::cast<const LoanHandle&>(data);
      const auto stream = stream_for(handle, wanted, "pipe.send");
      Loan loan = std::move(*handle.loan);  // another thread may send the loan too
      auto sending = without_gil(
          [&] { return pipe->send_async(std::move(loan), {.stream = handle_of(stream)}); });
      if (!loan.empty()) *handle.loan = std::move(loan);  // not sent
      return sending;
    }
    if (auto bytes = bytes_from(data)) {
      refuse_stream(data, wanted);
      const MessageOptions options{.tag = tag, .header = as_bytes({header.c_str(), header.size()})};
      return without_gil([&] { return pipe->send_async(*std::move(bytes), options); });
    }
    refuse_tag_and_header(data, tag, header);
    TensorDict batch = dict_from(data);
    const auto stream = stream_for(batch, wanted);
    if (auto bare = with_bare_loans(batch)) batch = *std::move(bare);
    return without_gil(
        [&] { return pipe->send_async(std::move(batch), {.stream = handle_of(stream)}); });
  };
  return make_future(
      self.context, timeout, start(), [] { return nb::none(); }, "pipe.send",
      [sent_by = std::weak_ptr(pipe)] {
        // Weak, so that a dropped pipe ends while its messages are pending.
        const auto open = sent_by.lock();
        return "the message was not sent to " +
               (open == nullptr ? std::string("the peer") : open->peer().to_string()) +
               " before the deadline";
      });
}

/// Returns a received batch to its stream if an exception keeps it from the caller.
auto giving_back(const std::shared_ptr<Pipe>& pipe) {
  return [pipe](Result<TensorDict> batch) {
    pipe->give_back(Message{.tag = 0, .header = {}, .tensors = *std::move(batch), .bytes = {}});
  };
}

/// The same for a receive on a stream: the batch is later received again in the order of `stream`.
auto giving_back(const std::shared_ptr<Pipe>& pipe, const std::optional<Stream>& stream) {
  return [give_back = giving_back(pipe), stream](Result<TensorDict> batch) {
    set_order(stream, *batch);
    give_back(std::move(batch));
  };
}

nb::object converted_or_given_back(const std::shared_ptr<Pipe>& pipe, TensorDict batch,
                                   nb::handle as) {
  if (as.is_none()) return converted(std::move(batch), as);
  return convert_or_give_back(
      batch, [&](const TensorDict& taken) { return converted(taken, as); },
      [&](const TensorDict& taken) { giving_back(pipe)(taken); });
}

nb::object recv(const PipeHandle& self, nb::object timeout, const std::string& mode, nb::object as,
                nb::object device, nb::object on_stream) {
  as = gpu_conversion_from(as, device);
  const auto stream = stream_from(on_stream);
  const auto wanted = word_from<RecvMode>("mode", mode);
  // Copies tensors on a GPU: a framework may write to its tensors, and a write to the peer's memory
  // would end its CUDA.
  const RecvMode on_gpu = wanted == RecvMode::view_only ? wanted : RecvMode::copy;
  const RecvOptions how{.mode = wanted,
                        .device_mode = on_gpu,
                        .device = device_from(device),
                        .stream = handle_of(stream)};
  const auto pipe = self.pipe;
  auto batch = wait_in_slices(
      until(self, timeout), [&](Deadline slice) { return pipe->recv(how, slice); },
      giving_back(pipe, stream));
  if (batch) set_order(stream, *batch);
  return converted_or_given_back(pipe, unwrap(std::move(batch)), as);
}

/// The text of an asynchronous receive that timed out.
std::string nothing_came(const Pipe& pipe) {
  return "no message of " + pipe.peer().to_string() + " was received before the deadline";
}

/// The stream of a receive, as this thread names it: another thread may take the result.
Stream named_here(const std::optional<Stream>& stream) {
  return stream.value_or(stream_of(detail::cuda::kPerThreadStream));
}

std::unique_ptr<Future> recv_async(const PipeHandle& self, nb::object timeout, nb::object as,
                                   nb::object device, nb::object on_stream) {
  as = gpu_conversion_from(as, device);
  const auto stream = stream_from(on_stream);
  const RecvOptions how{.device = device_from(device), .stream = handle_of(stream)};
  const auto pipe = self.pipe;
  return make_future(
      self.context, timeout, without_gil([&] { return pipe->recv_async(how); }),
      [as, pipe, used_on = named_here(stream)](TensorDict batch) {
        set_order(used_on, batch);
        return converted_or_given_back(pipe, std::move(batch), as);
      },
      "pipe.recv", [pipe] { return nothing_came(*pipe); });
}

nb::object each(nb::object self, nb::object timeout, nb::object as, nb::object device) {
  (void)gpu_conversion_from(as, device);
  nb::dict arguments;
  arguments["as_"] = as;
  arguments["device"] = device;
  return each_of(std::move(self), std::move(timeout), std::move(arguments));
}

/// Stores the received values in the destination; its arrays were filled in place.
void store_values(nb::handle destination, const Value* before, const Value* after) {
  if (after == nullptr || after == before) return;
  // Linear search would be slow: a peer may send a hundred thousand names.
  std::unordered_map<std::string_view, const Value*> known;
  if (before != nullptr)
    for (const auto& [path, value] : before->as_map()) known.emplace(path, &value);
  nb::list changed;
  for (const auto& [path, value] : after->as_map()) {
    const auto old = known.find(path);
    if (old != known.end() && *old->second == value) continue;
    nb::list names;
    for (const std::string& name : unwrap(parse_path(path))) names.append(nb::cast(name));
    changed.append(nb::make_tuple(nb::tuple(names), to_object(value)));
  }
  if (nb::len(changed) == 0) return;
  const nb::object homeless =
      nb::module_::import_("tendon._convert").attr("store")(destination, changed);
  if (nb::len(homeless) == 0) return;
  // A Value shows text in quotes and hides no characters of a peer's names.
  std::ostringstream text;
  text << "the values ";
  std::string_view separator;
  for (nb::handle name : homeless) {
    text << std::exchange(separator, ", ") << Value(nb::cast<std::string>(name));
  }
  text << " came too and are dropped: their place in the " << quoted_type(destination)
       << " cannot be changed; recv() returns them";
  if (PyErr_WarnEx(PyExc_UserWarning, text.str().c_str(), 1) != 0) throw nb::python_error();
}

void recv_into(const PipeHandle& self, nb::object destination, nb::object timeout) {
  const Deadline deadline = until(self, timeout);
  TensorDict arrays = dict_from(destination);
  // The consumer of an array on a GPU could not learn which stream filled it.
  unwrap(detail::check_on_cpu(arrays, "pipe.recv_into"));
  const auto pipe = self.pipe;
  const auto before = arrays.values();
  const auto give_back = [&](const auto&) { note_lost(pipe->give_back_from(arrays)); };
  unwrap(wait_in_slices(
      deadline, [&](Deadline slice) { return pipe->recv_into(arrays, slice); }, give_back));
  const auto store = [&](const TensorDict& filled) {
    store_values(destination, before.get(), filled.values().get());
  };
  convert_or_give_back(arrays, store, give_back);
}

std::unique_ptr<Future> recv_into_async(const PipeHandle& self, nb::object destination,
                                        nb::object timeout) {
  TensorDict arrays = dict_from(destination);
  const auto pipe = self.pipe;
  return make_future(
      self.context, timeout, without_gil([&] { return pipe->recv_into_async(arrays); }),
      [destination, before = arrays.values()](const TensorDict& filled) {
        store_values(destination, before.get(), filled.values().get());
        return nb::none();
      },
      "pipe.recv_into", [pipe] { return nothing_came(*pipe); });
}

std::unique_ptr<Future> recv_message_async(const PipeHandle& self, nb::object timeout) {
  const auto pipe = self.pipe;
  return make_future(
      self.context, timeout, without_gil([&] { return pipe->recv_message_async(); }),
      [used_on = named_here(std::nullopt)](Message message) {
        if (message.tensors) set_order(used_on, *message.tensors);
        return nb::cast(std::move(message));
      },
      "pipe.recv", [pipe] { return nothing_came(*pipe); });
}

Message recv_message(const PipeHandle& self, nb::object timeout) {
  const auto pipe = self.pipe;
  const auto ordered = [](Result<Message> message) {
    Message taken = unwrap(std::move(message));
    if (taken.tensors) set_order(std::nullopt, *taken.tensors);
    return taken;
  };
  return ordered(wait_in_slices(
      until(self, timeout), [&](Deadline slice) { return pipe->recv_message(slice); },
      [&](Result<Message> message) { pipe->give_back(ordered(std::move(message))); }));
}

LoanHandle loan(const PipeHandle& self, nb::object schema, nb::object timeout, nb::object device,
                nb::object on_stream) {
  const auto wanted = schema_from(schema);
  const LoanOptions options = loan_options_from(device, on_stream);
  const auto pipe = self.pipe;
  return make_loan(
      unwrap(wait_in_slices(until(self, timeout),
                            [&](Deadline slice) { return pipe->loan(wanted, options, slice); })),
      options);
}

nb::object next(const PipeHandle& self) {
  const auto pipe = self.pipe;
  auto batch = wait_in_slices(
      Deadline::never(),
      [&](Deadline slice) { return pipe->recv({.device_mode = RecvMode::copy}, slice); },
      giving_back(pipe, std::nullopt));
  if (!batch && batch.error().code == ErrorCode::end_of_stream) throw nb::stop_iteration();
  if (batch) set_order(std::nullopt, *batch);
  return nb::cast(unwrap(std::move(batch)));
}

std::unique_ptr<Future> next_async(const PipeHandle& self) {
  auto future = recv_async(self, nb::none(), nb::none(), nb::none(), nb::none());
  future->ends_iteration = true;
  return future;
}

/// Calls a method that waits and takes only a timeout: flush, close, finish_sending.
template <Result<void> (Pipe::*Method)(Deadline)>
void wait_for(const PipeHandle& self, nb::object timeout) {
  const auto pipe = self.pipe;
  unwrap(wait_in_slices(until(self, timeout),
                        [&](Deadline slice) { return ((*pipe).*Method)(slice); }));
}

/// wait_for() as a coroutine for an event loop.
template <Result<void> (Pipe::*Method)(Deadline)>
nb::object await_for(const PipeHandle& self, nb::object timeout) {
  const auto call = [pipe = self.pipe](nb::object seconds) {
    unwrap(wait_in_slices(deadline_of(seconds, 0),
                          [&](Deadline slice) { return ((*pipe).*Method)(slice); }));
  };
  return asyncio_part("in_slices")(nb::cpp_function(call), seconds_left(until(self, timeout)));
}

void cancel(const PipeHandle& self, nb::object reason) {
  if (reason.is_none()) return self.pipe->cancel();
  self.pipe->cancel(error_from(reason));
}

void leave(const PipeHandle& self, nb::object type, nb::object value, nb::object) {
  if (!type.is_none()) {
    return self.pipe->cancel(
        Error{ErrorCode::cancelled, "pipe",
              "an exception left its with block: " + exception_text(type, value)});
  }
  const auto pipe = self.pipe;
  auto closed = wait_in_slices(until(self, nb::ellipsis()),
                               [&](Deadline slice) { return pipe->close(slice); });
  if (!closed && closed.error().code != ErrorCode::pipe_closed) unwrap(std::move(closed));
}

void bind_message(nb::module_& module) {
  nb::class_<Message>(module, "Message", "Either kind of message, as recv_message() returns it.")
      .def_ro("tag", &Message::tag, "The number that was sent with raw bytes.")
      .def_prop_ro(
          "header",
          [](const Message& self) {
            return nb::bytes(self.header.data(), self.header.size_bytes());
          },
          "The dict that was sent beside raw bytes.")
      .def_prop_ro(
          "bytes", [](const Message& self) { return to_memoryview(self.bytes); },
          "Raw bytes where they arrived, without a copy; empty for a batch.",
          nb::sig("def bytes(self) -> memoryview"))
      .def_prop_ro(
          "batch",
          [](const Message& self) -> nb::object {
            return self.tensors ? nb::cast(*self.tensors) : nb::none();
          },
          "The batch, or None for raw bytes.", nb::sig("def batch(self) -> TensorDict | None"));
}

void bind_stats(nb::module_& module) {
  nb::class_<PipeStats>(module, "PipeStats", "What this end of a pipe did since it was made.")
      .def_ro("messages_sent", &PipeStats::messages_sent)
      .def_ro("bytes_sent", &PipeStats::bytes_sent, "Payload.")
      .def_ro("messages_received", &PipeStats::messages_received)
      .def_ro("bytes_received", &PipeStats::bytes_received, "Payload.")
      .def_ro("loans_sent", &PipeStats::loans_sent, "Sent without a copy.")
      .def_ro("copies", &PipeStats::copies, "Messages copied by this end.")
      .def_ro("bytes_copied", &PipeStats::bytes_copied)
      .def_ro("copied_inline", &PipeStats::copied_inline, "Small ones, copied instead of lent.")
      .def_ro("copied_low_credit", &PipeStats::copied_low_credit,
              "Received while too many slots were held: copied instead of lent.")
      .def_ro("copied_other_link", &PipeStats::copied_other_link,
              "Sent on although they lay in another link's slots.")
      .def_ro("copies_d2h", &PipeStats::copies_d2h, "Messages copied from a GPU to host memory.")
      .def_ro("bytes_d2h", &PipeStats::bytes_d2h)
      .def_ro("copies_h2d", &PipeStats::copies_h2d,
              "Messages copied from host memory to a GPU, as received.")
      .def_ro("bytes_h2d", &PipeStats::bytes_h2d)
      .def_ro("copies_d2d", &PipeStats::copies_d2d, "Messages copied within a GPU.")
      .def_ro("bytes_d2d", &PipeStats::bytes_d2d)
      .def_ro("incomplete", &PipeStats::incomplete,
              "Lost with their sender, before its GPU had made them.")
      .def_ro("schemas_announced", &PipeStats::schemas_announced)
      .def_ro("waits", &PipeStats::waits, "Calls that had to wait.")
      .def_ro("dropped", &PipeStats::dropped, "Unread messages that were dropped.")
      .def("__repr__", [](const PipeStats& self) {
        std::ostringstream text;
        text << self;
        return text.str();
      });
}

nb::list device_paths(const PipeHandle& self) {
  nb::list paths;
  for (const PathOfDevice& each : self.pipe->device_paths()) {
    nb::dict path;
    path["device"] = to_string(each.device);
    path["uuid"] = each.uuid;
    path["peer"] = each.peer;
    path["direct"] = each.is_direct;
    path["reason"] = each.reason;
    paths.append(path);
  }
  return paths;
}

using Class = nb::class_<PipeHandle>;

void bind_sending(Class& pipe) {
  pipe.def("send", send, nb::arg("data").none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::kw_only(), nb::arg("tag") = 0, nb::arg("header") = nb::bytes("", 0),
           nb::arg("stream").none() = nb::none(),
           "Sends a mapping of arrays and values, a Loan, or bytes (with tag and\n"
           "header, a raw message). Returns when the arguments may be reused; flush()\n"
           "says when they have arrived.\n\n"
           "Arrays may lie in host memory and on one GPU. stream: that on which those of the\n"
           "GPU are read, a stream of torch, CuPy or cuda.core or its handle; by default that\n"
           "of the first one: torch's current stream, that of __cuda_array_interface__, else\n"
           "the legacy stream, which arrays with __dlpack__ are made ready on. It waits for\n"
           "the streams of the others on the GPU. Arrays on a GPU that have gaps are copied\n"
           "by their library, or NotContiguous. A Loan on a GPU is sent on its own stream by\n"
           "default, behind the streams of all that its arrays were given to by __dlpack__.\n\n"
           "Raises Timeout, ResourceExhausted, MessageTooLarge, PeerLost, Cancelled,\n"
           "UnsupportedDevice, DeviceLost, WrongLink (of a Loan),\n"
           "TypeError and ValueError that name key, dtype, shape and what is legal.",
           nb::sig("def send(self, data: object, timeout: float | None = ..., *, tag: int = 0, "
                   "header: bytes = b'', stream: object = None) -> None"))
      .def("isend", send_async, nb::arg("data").none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::kw_only(), nb::arg("tag") = 0, nb::arg("header") = nb::bytes("", 0),
           nb::arg("stream").none() = nb::none(),
           "Starts sending and returns a Future; the arrays are kept until it is done.",
           nb::sig("def isend(self, data: object, timeout: float | None = ..., *, tag: int = 0, "
                   "header: bytes = b'', stream: object = None) -> Future[None]"))
      .def("asend", send_async, nb::arg("data").none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::kw_only(), nb::arg("tag") = 0, nb::arg("header") = nb::bytes("", 0),
           nb::arg("stream").none() = nb::none(), "`await pipe.asend(batch)`.",
           nb::sig("def asend(self, data: object, timeout: float | None = ..., *, tag: int = 0, "
                   "header: bytes = b'', stream: object = None) -> Future[None]"))
      .def(
          "loan", loan, nb::arg("schema").none(), nb::arg("timeout").none() = nb::ellipsis(),
          nb::kw_only(), nb::arg("device").none() = nb::none(),
          nb::arg("stream").none() = nb::none(), nb::keep_alive<0, 5>(),
          "Memory in which the peer can read: fill it and send() it.\n\n"
          "schema: a Schema, or a mapping from names to (dtype, shape [elements]).\n"
          "timeout: seconds; it waits until there is room.\n"
          "device: where it lies: 'cuda:0' or a torch.device; None or 'cpu': in host memory. On\n"
          "a GPU it is memory of the Context, for any of its pipes and publishers.\n"
          "stream: on which it is filled on the GPU, a stream of torch, CuPy or cuda.core or its\n"
          "handle; by default the per-thread default stream. The Loan keeps it; the caller does\n"
          "while it has arrays of the loan. Consumers of __dlpack__ on other streams wait for it,\n"
          "and it for them.\n\n"
          "Raises Timeout, ResourceExhausted (who holds the memory), MessageTooLarge,\n"
          "PipeClosed, PeerLost; for a GPU UnsupportedDevice, NotSupported (no driver of CUDA),\n"
          "DeviceLost, InvalidArgument (a stream that is being captured); ValueError for a\n"
          "stream without a GPU.",
          nb::sig("def loan(self, schema: object, timeout: float | None = ..., *, device: object "
                  "= None, stream: object = None) -> Loan"))
      .def("flush", wait_for<&Pipe::flush>, nb::arg("timeout").none() = nb::ellipsis(),
           "Returns when the peer's Tendon holds everything sent so far.",
           nb::sig("def flush(self, timeout: float | None = ...) -> None"))
      .def("aflush", await_for<&Pipe::flush>, nb::arg("timeout").none() = nb::ellipsis(),
           "`await pipe.aflush()`.",
           nb::sig("def aflush(self, timeout: float | None = ...) -> "
                   "collections.abc.Coroutine[typing.Any, typing.Any, None]"))
      .def("finish_sending", wait_for<&Pipe::finish_sending>,
           nb::arg("timeout").none() = nb::ellipsis(),
           "The half-close: the peer reads to the end; receiving goes on.",
           nb::sig("def finish_sending(self, timeout: float | None = ...) -> None"))
      .def("afinish_sending", await_for<&Pipe::finish_sending>,
           nb::arg("timeout").none() = nb::ellipsis(), "`await pipe.afinish_sending()`.",
           nb::sig("def afinish_sending(self, timeout: float | None = ...) -> "
                   "collections.abc.Coroutine[typing.Any, typing.Any, None]"));
}

void bind_receiving(Class& pipe) {
  pipe.def("recv", recv, nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(),
           nb::arg("mode") = "view_or_copy", nb::arg("as_").none() = nb::none(),
           nb::arg("device").none() = nb::none(), nb::arg("stream").none() = nb::none(),
           "The next batch.\n\n"
           "mode: 'view_or_copy' (views while the sender has free memory, else a\n"
           "copy), 'view_only' (else NoCredit), 'copy'.\n"
           "as_: torch (the module) for nested dicts of torch tensors,\n"
           "tensordict.TensorDict, or dict.\n"
           "device: where its tensors are to be: 'cpu', 'cuda:0', or a torch.device; None:\n"
           "where the sender had them, in host memory or on the same GPU.\n"
           "stream: behind whose work tensors arrive on a GPU, a stream of torch, CuPy or\n"
           "cuda.core or its handle; by default the per-thread default stream. It lives until\n"
           "they are dropped. Consumers of __dlpack__ on other streams wait by themselves.\n\n"
           "Raises Timeout, EndOfStream, PeerLost, Cancelled, WrongKind (raw bytes come\n"
           "next: recv_message()), UnsupportedDevice (a GPU that this process has not, or the\n"
           "sender's where this process has not used CUDA: the batch stays, for a recv with\n"
           "device='cpu'), NotSupported (no driver of CUDA).",
           nb::sig("def recv(self, timeout: float | None = ..., *, mode: str = 'view_or_copy', "
                   "as_: typing.Any = None, device: object = None, stream: object = None) -> "
                   "typing.Any"))
      .def("irecv", recv_async, nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(),
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(),
           nb::arg("stream").none() = nb::none(),
           "Starts receiving and returns a Future.\n\n"
           "device: as for recv(). What it names is on the GPU once the future is done, for any\n"
           "stream; a batch that cannot be there stays, for the next receive.\n"
           "stream: on which its tensors are used; it lives until they are dropped.",
           nb::sig("def irecv(self, timeout: float | None = ..., *, as_: typing.Any = None, "
                   "device: object = None, stream: object = None) -> Future[typing.Any]"))
      .def("arecv", recv_async, nb::arg("timeout").none() = nb::ellipsis(), nb::kw_only(),
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(),
           nb::arg("stream").none() = nb::none(),
           "`batch = await pipe.arecv()`; with what irecv() has.",
           nb::sig("def arecv(self, timeout: float | None = ..., *, as_: typing.Any = None, "
                   "device: object = None, stream: object = None) -> Future[typing.Any]"))
      .def("recv_into", recv_into, nb::arg("destination").none(),
           nb::arg("timeout").none() = nb::ellipsis(),
           "Receives into arrays that exist, of the same names, dtypes and shapes;\n"
           "SchemaMismatch leaves the message in the pipe. Values are set in it: of a\n"
           "mapping that cannot be changed they are dropped, with a warning.",
           nb::sig("def recv_into(self, destination: object, timeout: float | None = ...) -> None"))
      .def("irecv_into", recv_into_async, nb::arg("destination").none(),
           nb::arg("timeout").none() = nb::ellipsis(),
           "recv_into as a Future. Arrays are written at any time until it is done, values\n"
           "are set by result().",
           nb::sig("def irecv_into(self, destination: object, timeout: float | None = ...) -> "
                   "Future[None]"))
      .def("arecv_into", recv_into_async, nb::arg("destination").none(),
           nb::arg("timeout").none() = nb::ellipsis(), "`await pipe.arecv_into(mine)`.",
           nb::sig("def arecv_into(self, destination: object, timeout: float | None = ...) -> "
                   "Future[None]"))
      .def("recv_message", recv_message, nb::arg("timeout").none() = nb::ellipsis(),
           "The next message of either kind.",
           nb::sig("def recv_message(self, timeout: float | None = ...) -> Message"))
      .def("irecv_message", recv_message_async, nb::arg("timeout").none() = nb::ellipsis(),
           "recv_message as a Future.",
           nb::sig("def irecv_message(self, timeout: float | None = ...) -> Future[Message]"))
      .def("arecv_message", recv_message_async, nb::arg("timeout").none() = nb::ellipsis(),
           "`message = await pipe.arecv_message()`.",
           nb::sig("def arecv_message(self, timeout: float | None = ...) -> Future[Message]"))
      .def("each", each, nb::arg("timeout").none() = nb::none(), nb::kw_only(),
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(),
           "Reads to the end of the stream, as iterating the pipe does, with what recv() is\n"
           "given: `for batch in pipe.each(as_=torch)`, and `async for`, which has what arecv()\n"
           "has.\n\n"
           "timeout: of each batch [s]; None: for ever.",
           nb::sig("def each(self, timeout: float | None = None, *, as_: typing.Any = None, "
                   "device: object = None) -> Each[typing.Any]"))
      .def(
          "__iter__", [](nb::object self) { return self; },
          nb::sig("def __iter__(self) -> typing.Iterator[TensorDict]"))
      .def("__next__", next)
      .def(
          "__aiter__", [](nb::object self) { return self; },
          nb::sig("def __aiter__(self) -> typing.AsyncIterator[TensorDict]"))
      .def("__anext__", next_async, nb::sig("def __anext__(self) -> typing.Awaitable[TensorDict]"));
}

void bind_life(Class& pipe) {
  pipe.def("close", wait_for<&Pipe::close>, nb::arg("timeout").none() = nb::ellipsis(),
           "flush(), then the orderly end; later calls raise PipeClosed.",
           nb::sig("def close(self, timeout: float | None = ...) -> None"))
      .def("aclose", await_for<&Pipe::close>, nb::arg("timeout").none() = nb::ellipsis(),
           "`await pipe.aclose()`.",
           nb::sig("def aclose(self, timeout: float | None = ...) -> "
                   "collections.abc.Coroutine[typing.Any, typing.Any, None]"))
      .def("cancel", cancel, nb::arg("reason").none() = nb::none(),
           "Ends both directions now.\n\n"
           "reason: a tendon.Error whose text the peer gets, with its class where that\n"
           "speaks of this side (ServerBusy, InternalError, ...); else it gets Cancelled.",
           nb::sig("def cancel(self, reason: Error | None = None) -> None"))
      .def_prop_ro(
          "path", [](const PipeHandle& self) { return self.pipe->path().to_string(); },
          "The path bytes take, and why: 'shm: same host, ...'.")
      .def_prop_ro(
          "peer", [](const PipeHandle& self) { return self.pipe->peer(); },
          "The peer at the other end, and what it has proved.")
      .def_ro("context", &PipeHandle::context, "The Context it was made from.",
              nb::sig("def context(self) -> Context"))
      .def(
          "stats", [](const PipeHandle& self) { return self.pipe->stats(); },
          "Counts of messages, bytes, copies and waits.")
      .def("device_paths", device_paths,
           "How arrays of each GPU that was sent from travel: a dict with device, uuid, peer,\n"
           "direct, and the reason where they are staged.",
           nb::sig("def device_paths(self) -> list[dict[str, object]]"))
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Pipe"))
      .def("__exit__", leave, nb::arg("type").none(), nb::arg("value").none(),
           nb::arg("traceback").none(),
           nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"))
      .def(
          "__aenter__", [](nb::object self) { return asyncio_part("enter")(self); },
          nb::sig(
              "def __aenter__(self) -> collections.abc.Coroutine[typing.Any, typing.Any, Pipe]"))
      .def(
          "__aexit__",
          [](nb::object self, nb::object type, nb::object value, nb::object traceback) {
            return asyncio_part("leave")(self, type, value, traceback);
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __aexit__(self, type: object, value: object, traceback: object) -> "
                  "collections.abc.Coroutine[typing.Any, typing.Any, None]"))
      .def("__repr__", [](const PipeHandle& self) {
        return "tendon.Pipe(to " + self.pipe->peer().to_string() + ", " +
               self.pipe->path().to_string() + ")";
      });
}

}  // namespace

PipeHandle make_pipe(Pipe pipe, nb::object context) {
  return {std::make_shared<Pipe>(std::move(pipe)), std::move(context)};
}

PipeHandle connect_pipe(nb::object context, const std::string& address, nb::object timeout,
                        const Security& security, bool wait, std::stop_source stop) {
  prepare_conversions();
  const auto& handle = nb::cast<const ContextHandle&>(context);
  const ConnectOptions options{
      .security = security, .absent = wait ? Absent::wait : Absent::fail, .stop = stop.get_token()};
  auto connected = wait_beside(
      deadline_of(timeout, handle.timeout_s),
      [shared = handle.context, address, options](Deadline deadline) {
        return Pipe::connect(*shared, address, deadline, options);
      },
      [&stop] { stop_at_signal(stop); });
  return make_pipe(unwrap(std::move(connected)), std::move(context));
}

void bind_pipe(nb::module_& module) {
  bind_message(module);
  bind_stats(module);
  Class pipe(module, "Pipe", kPipeDoc);
  bind_sending(pipe);
  bind_receiving(pipe);
  bind_life(pipe);
}

}  // namespace tendon::python
