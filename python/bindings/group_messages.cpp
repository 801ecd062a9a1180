// SPDX-License-Identifier: Apache-2.0
// Messages between members, and messages of a form that the receiver does not know.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <optional>

#include "conversion.hpp"
#include "dicts.hpp"
#include "future.hpp"
#include "group.hpp"
#include "rendezvous.hpp"

namespace tendon::python {
namespace {

std::optional<std::uint32_t> optional_number(nb::handle object, const char* name) {
  if (object.is_none()) return std::nullopt;
  return rank_from(object, name);
}

From from_of(nb::handle src, nb::handle tag) {
  From from{.rank = {}, .tag = optional_number(tag, "tag")};
  if (!src.is_none()) from.rank = rank_of(src, "src");
  return from;
}

/// "rank 1 (vision (host a, pid 4711))", or "anybody".
std::string member_text(const Group& group, std::optional<GroupRank> rank) {
  if (!rank) return "anybody";
  std::string text = "rank " + std::to_string(rank->value);
  for (const GroupMember& member : group.members())
    if (member.rank == *rank) text += " (" + member.identity.to_string() + ")";
  return text;
}

/// The text of an isend that timed out.
std::string not_sent(const Group& group, const To& to) {
  return "isend on group \"" + group.name() + "\": the message was not sent to " +
         member_text(group, to.rank) + " before the deadline";
}

std::string nothing_came(const Group& group, const From& from) {
  return "irecv on group \"" + group.name() + "\": nothing came from " +
         member_text(group, from.rank) +
         (from.tag ? " with tag " + std::to_string(*from.tag) : "") + " before the deadline";
}

void send(const GroupHandle& self, nb::object values, nb::object dst, nb::object tag,
          nb::object timeout) {
  const auto group = open(self);
  const Keep kept = values_of(values, "values", Touch::reads);
  const To to{rank_of(dst, "dst"), rank_from(tag, "tag")};
  send_with(until(self, timeout), kept->size_bytes(),
            [group, kept, to](Deadline end) { return group->send(kept->tensors(), to, end); });
}

std::unique_ptr<Future> send_async(nb::object self, nb::object values, nb::object dst,
                                   nb::object tag, nb::object timeout) {
  const auto& handle = nb::cast<const GroupHandle&>(self);
  const auto group = open(handle);
  const Keep kept = values_of(values, "values", Touch::reads);
  const To to{rank_of(dst, "dst"), rank_from(tag, "tag")};
  auto completion = without_gil([&] { return group->send_async(kept->tensors(), to); });
  return make_future(
      handle.context, std::move(timeout), std::move(completion), [self] { return nb::none(); },
      "group.send", [group, to] { return not_sent(*group, to); });
}

Received recv(const GroupHandle& self, nb::object values, nb::object src, nb::object tag,
              nb::object timeout) {
  const auto group = open(self);
  const Keep kept = values_of(values, "values", Touch::changes);
  const From from = from_of(src, tag);
  return unwrap(wait_in_slices(
      until(self, timeout),
      [&](Deadline slice) { return group->recv(kept->tensors(), from, slice); },
      [&](const Result<Received>& received) {
        note_lost(group->give_back(kept->tensors(), *received));
      }));
}

std::unique_ptr<Future> recv_async(nb::object self, nb::object values, nb::object src,
                                   nb::object tag, nb::object timeout) {
  const auto& handle = nb::cast<const GroupHandle&>(self);
  const auto group = open(handle);
  const Keep kept = values_of(values, "values", Touch::changes);
  const From from = from_of(src, tag);
  auto completion = without_gil([&] { return group->recv_async(kept->tensors(), from); });
  return make_future(
      handle.context, std::move(timeout), std::move(completion),
      [self](Received received) { return nb::cast(received); }, "group.recv",
      [group, from] { return nothing_came(*group, from); });
}

void init_remote(const GroupHandle& self, nb::object values, nb::object dst, nb::object tag,
                 nb::object timeout) {
  const auto group = open(self);
  const To to{rank_of(dst, "dst"), rank_from(tag, "tag")};
  TensorDict dict = dict_from(values);
  const std::uint64_t size_bytes = dict.size_bytes();
  send_with(until(self, timeout), size_bytes, [group, dict = std::move(dict), to](Deadline end) {
    return group->init_remote(dict, to, end);
  });
}

nb::object from_remote_init(const GroupHandle& self, nb::object src, nb::object tag,
                            nb::object timeout, nb::object as, nb::object device) {
  as = conversion_from(as, device);
  const auto group = open(self);
  const From from = from_of(src, tag);
  Received received;
  const auto give_back = [&](const TensorDict& dict) {
    note_lost(group->give_back_init(dict, received));
  };
  const TensorDict dict = unwrap(wait_in_slices(
      until(self, timeout),
      [&](Deadline slice) { return group->from_remote_init(from, slice, &received); },
      [&](const Result<TensorDict>& taken) { give_back(*taken); }));
  return convert_or_give_back(
      dict, [&](const TensorDict& taken) { return converted(taken, as); }, give_back);
}

nb::object broadcast_init(const GroupHandle& self, nb::object values, nb::object root,
                          nb::object timeout, nb::object as, nb::object device) {
  as = conversion_from(as, device);
  const GroupRank from = rank_of(root, "root");
  const bool here = open(self)->rank() == from;
  TensorDict given = here ? dict_from(values) : TensorDict();
  TensorDict got = collective_beside(self, "broadcast_init", timeout,
                                     [given = std::move(given), from](Group& group, Deadline end) {
                                       return group.broadcast_init(given, from, end);
                                     });
  return here && as.is_none() ? values : converted(std::move(got), as);
}

}  // namespace

void bind_group_messages(nb::class_<GroupHandle>& group) {
  group
      .def("send", send, nb::arg("values").none(), nb::arg("dst"), nb::kw_only(),
           nb::arg("tag") = 0, nb::arg("timeout").none() = nb::ellipsis(),
           "Sends arrays to the member dst. Messages of one pair and tag keep their order.",
           nb::sig("def send(self, values: object, dst: int, *, tag: int = 0, timeout: float | "
                   "None = ...) -> None"))
      .def("isend", send_async, nb::arg("values").none(), nb::arg("dst"), nb::kw_only(),
           nb::arg("tag") = 0, nb::arg("timeout").none() = nb::ellipsis(),
           "Starts sending and returns a Future.",
           nb::sig("def isend(self, values: object, dst: int, *, tag: int = 0, timeout: float | "
                   "None = ...) -> Future[None]"))
      .def("recv", recv, nb::arg("values").none(), nb::arg("src").none() = nb::none(),
           nb::kw_only(), nb::arg("tag").none() = nb::none(),
           nb::arg("timeout").none() = nb::ellipsis(),
           "Receives into arrays of the sender's dtypes and shapes.\n\n"
           "src, tag: None takes any.",
           nb::sig("def recv(self, values: object, src: int | None = None, *, tag: int | None = "
                   "None, timeout: float | None = ...) -> Received"))
      .def("irecv", recv_async, nb::arg("values").none(), nb::arg("src").none() = nb::none(),
           nb::kw_only(), nb::arg("tag").none() = nb::none(),
           nb::arg("timeout").none() = nb::ellipsis(),
           "Starts receiving and returns a Future of a Received.",
           nb::sig("def irecv(self, values: object, src: int | None = None, *, tag: int | None = "
                   "None, timeout: float | None = ...) -> Future[Received]"))
      .def("init_remote", init_remote, nb::arg("values").none(), nb::arg("dst"), nb::kw_only(),
           nb::arg("tag") = 0, nb::arg("timeout").none() = nb::ellipsis(),
           "Sends a whole mapping to a member that knows nothing of it.",
           nb::sig("def init_remote(self, values: object, dst: int, *, tag: int = 0, timeout: "
                   "float | None = ...) -> None"))
      .def("from_remote_init", from_remote_init, nb::arg("src").none() = nb::none(), nb::kw_only(),
           nb::arg("tag").none() = nb::none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(),
           "The batch that init_remote() sent.\n\nas_, device: as those of Pipe.recv.",
           nb::sig("def from_remote_init(self, src: int | None = None, *, tag: int | None = None, "
                   "timeout: float | None = ..., as_: typing.Any = None, device: object = None) -> "
                   "typing.Any"))
      .def("broadcast_init", broadcast_init, nb::arg("values").none() = nb::none(),
           nb::arg("root") = 0, nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(),
           "Gives all members the mapping of root: names, shapes, values and arrays. The\n"
           "others need to know nothing of it.\n\n"
           "as_, device: as those of Pipe.recv.",
           nb::sig(
               "def broadcast_init(self, values: object = None, root: int = 0, *, timeout: "
               "float | None = ..., as_: typing.Any = None, device: object = None) -> typing.Any"));
}

}  // namespace tendon::python
