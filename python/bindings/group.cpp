// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "choices.hpp"
#include "context.hpp"
#include "rendezvous.hpp"

namespace tendon::python {
namespace {

constexpr const char* kGroupDoc =
    "Processes that compute together: collectives, messages by rank, and what\n"
    "happens when one dies. Made by Group.join().\n\n"
    "Every member calls the same collectives in the same order. Values are an\n"
    "array (NumPy, torch, anything with DLPack), a mapping of arrays, a TensorDict,\n"
    "or a list of these, and are changed in place, gaps between elements or not; a\n"
    "list or mapping is one operation. Results are equal on all members, bit for\n"
    "bit.\n\n"
    "timeout is in seconds, None waits for ever; left out, it is the context's,\n"
    "where that names none 30 s, and 1800 s for a collective, split and subgroup. A\n"
    "collective that ends by its timeout, by Ctrl-C or by the death of a member\n"
    "ends the epoch for all: calls raise until every survivor has called shrink(),\n"
    "or rebuild() where other processes take the places of those that are gone.\n"
    "async_op=True starts it and returns a Future; start them in the same order on\n"
    "all members, and leave the arrays alone until it is done.\n\n"
    "A `with` block leaves the group, or aborts it when an exception leaves the\n"
    "block. Safe from every thread. The GIL is released while it waits.";

/// Ends a group without the GIL: it tells the other members and ends pending operations.
void end_group(Group* group) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
    delete group;
    return;
  }
  const WithoutGil unlocked;
  delete group;
}

nb::object make_group(Group group, nb::object context, std::shared_ptr<PythonStore> store) {
  return nb::cast(GroupHandle{std::shared_ptr<Group>(new Group(std::move(group)), end_group),
                              std::move(context), std::move(store)});
}

/// Makes a call that may ask the store on a thread of its own; this thread, which has the GIL,
/// answers.
template <class F>
auto wait_serving(const std::shared_ptr<PythonStore>& store, Deadline deadline, F call) {
  if (store == nullptr) return wait_beside(deadline, std::move(call));
  start_serving(*store);
  try {
    return wait_beside(deadline, std::move(call), std::chrono::milliseconds(5), [&] {
      look_at_signals();
      serve(*store);
    });
  } catch (...) {
    stop_serving(*store);
    throw;
  }
}

template <class Rank>
std::vector<Rank> ranks_from(nb::handle members) {
  std::vector<Rank> ranks;
  for (const nb::handle member : nb::iter(members)) ranks.push_back({rank_from(member, "a rank")});
  return ranks;
}

nb::object subgroup(const GroupHandle& self, nb::object members, nb::object timeout,
                    const std::string& name) {
  const auto group = open(self);
  auto made = wait_beside(until(self, collective_timeout(self, std::move(timeout))),
                          [group, ranks = ranks_from<GroupRank>(members), name](Deadline end) {
                            return group->subgroup(ranks, end, name);
                          });
  return make_group(unwrap(std::move(made)), self.context, self.store);
}

nb::object split(const GroupHandle& self, nb::object members, nb::object timeout,
                 const std::string& name) {
  Group made =
      collective_beside(self, "split", std::move(timeout),
                        [ranks = ranks_from<GlobalRank>(members), name](
                            Group& group, Deadline end) { return group.split(ranks, end, name); });
  return make_group(std::move(made), self.context, self.store);
}

void shrink(const GroupHandle& self, nb::object timeout, const std::string& fence) {
  const auto group = open(self);
  const ShrinkOptions options{.fence = word_from<Fence>("fence", fence)};
  unwrap(wait_beside(until(self, timeout),
                     [group, options](Deadline end) { return group->shrink(end, options); }));
}

std::uint64_t grow(const GroupHandle& self, nb::object timeout) {
  const auto group = open(self);
  return unwrap(
      wait_beside(until(self, timeout), [group](Deadline end) { return group->grow(end); }));
}

std::uint64_t rebuild(const GroupHandle& self, nb::object timeout, const std::string& fence) {
  const auto group = open(self);
  const ShrinkOptions options{.fence = word_from<Fence>("fence", fence)};
  return unwrap(wait_serving(self.store, until(self, timeout), [group, options](Deadline end) {
    return group->rebuild(end, options);
  }));
}

void abort(const GroupHandle& self, const std::string& reason) {
  const auto group = open(self);
  const WithoutGil unlocked;
  group->abort(reason);
}

void leave(GroupHandle& self, nb::object type, nb::object value, nb::object /*traceback*/) {
  if (!type.is_none() && self.group != nullptr) {
    abort(self, "an exception left its with block: " + exception_text(type, value));
  }
  self.group.reset();
}

nb::object join(nb::object rendezvous, nb::object context, nb::object rank, nb::object size,
                nb::object address, nb::object store, nb::object timeout, const std::string& name,
                const std::string& listen, const std::string& minority,
                const std::string& profile) {
  const RendezvousHandle where = rendezvous_from(rendezvous, rank, size, address, store);
  context = context_or_default(std::move(context));
  const auto& handle = nb::cast<const ContextHandle&>(context);
  const GroupOptions options{.name = name,
                             .listen = listen,
                             .security = {word_from<Profile>("profile", profile)},
                             .minority = word_from<Minority>("minority", minority)};
  const Deadline deadline = deadline_of(timeout, handle.timeout_s);
  const auto call = [shared = handle.context, place = where.rendezvous, options](Deadline end) {
    return Group::join(*shared, place, end, options);
  };
  return make_group(unwrap(wait_serving(where.store, deadline, call)), std::move(context),
                    where.store);
}

nb::list members(const GroupHandle& self) {
  nb::list list;
  for (GroupMember& member : open(self)->members()) list.append(nb::cast(std::move(member)));
  return list;
}

using Class = nb::class_<GroupHandle>;

void bind_parts(nb::module_& module) {
  nb::class_<GroupMember>(module, "GroupMember", "A member of a group at one moment.")
      .def_prop_ro(
          "rank", [](const GroupMember& self) { return self.rank.value; }, "Now.")
      .def_ro("place", &GroupMember::place, "Its rank when the group was made; it never changes.")
      .def_prop_ro(
          "identity", [](const GroupMember& self) { return self.identity.to_string(); },
          "Such as 'vision (host a, pid 4711)'.")
      .def_prop_ro(
          "path",
          [](const GroupMember& self) -> nb::object {
            return self.path ? nb::cast(self.path->to_string()) : nb::none();
          },
          "How it is reached; None: it is this process.", nb::sig("def path(self) -> str | None"))
      .def("__repr__", [](const GroupMember& self) {
        return "tendon.GroupMember(rank " + std::to_string(self.rank.value) + ", " +
               self.identity.to_string() + ")";
      });
  nb::class_<GroupStatus>(module, "GroupStatus", "What a group is doing at one moment.")
      .def_ro("group", &GroupStatus::group, "Its name.")
      .def_ro("epoch", &GroupStatus::epoch)
      .def_ro("size", &GroupStatus::size, "Members of this epoch.")
      .def_prop_ro(
          "state", [](const GroupStatus& self) { return std::string(to_string(self.state)); },
          "'idle', 'in_operation', or 'ended': its epoch; shrink(), grow() or rebuild() make\n"
          "the next one.",
          nb::sig("def state(self) -> str"))
      .def_prop_ro(
          "operation",
          [](const GroupStatus& self) {
            return self.operation.empty() ? nb::none() : nb::cast(self.operation);
          },
          "'all_reduce': the first that was called and is not over; None: there is none.",
          nb::sig("def operation(self) -> str | None"))
      .def_ro("sequence", &GroupStatus::sequence, "The number of the operation.")
      .def_prop_ro(
          "elapsed",
          [](const GroupStatus& self) {
            return std::chrono::duration<double>(self.elapsed).count();
          },
          "Seconds since it was found that it has to wait; 0 before, and while a thread\n"
          "works on it.")
      .def_prop_ro(
          "waiting_for",
          [](const GroupStatus& self) {
            nb::list ranks;
            for (const GroupRank rank : self.waiting_for) ranks.append(rank.value);
            return ranks;
          },
          "Ranks. Over tcp those whose message comes next: they may wait for others.",
          nb::sig("def waiting_for(self) -> list[int]"))
      .def("__str__", [](const GroupStatus& self) { return to_string(self); })
      .def("__repr__", [](const GroupStatus& self) {
        return "tendon.GroupStatus('" + self.group + "', " + to_string(self) + ")";
      });
  nb::class_<Received>(module, "Received", "Whose message recv() took.")
      .def_prop_ro("rank", [](const Received& self) { return self.rank.value; })
      .def_ro("tag", &Received::tag)
      .def("__repr__", [](const Received& self) {
        return "tendon.Received(rank=" + std::to_string(self.rank.value) +
               ", tag=" + std::to_string(self.tag) + ")";
      });
}

void bind_join(Class& group) {
  group.def_static(
      "join", join, nb::arg("rendezvous").none() = nb::none(), nb::kw_only(),
      nb::arg("context").none() = nb::none(), nb::arg("rank").none() = nb::none(),
      nb::arg("size").none() = nb::none(), nb::arg("address").none() = nb::none(),
      nb::arg("store").none() = nb::none(), nb::arg("timeout").none() = nb::ellipsis(),
      nb::arg("name") = "world", nb::arg("listen") = "", nb::arg("minority") = "refuse",
      nb::arg("profile") = "local",
      "Meets the others and makes a link to each; returns when all are there.\n\n"
      "Without arguments the environment says who and where (`tendon launch`,\n"
      "torchrun, mpirun, srun: Rendezvous.from_environment()).\n"
      "rank, size: which member this is, of how many; with either\n"
      "address: 'host:port', where rank 0 listens, or\n"
      "store: a torch Store, or any object with set, get and wait.\n"
      "name: in errors, and in the keys of a store.\n"
      "listen: where this member listens, '10.0.0.5:0'; '': TENDON_LISTEN, else at the\n"
      "interface that reaches the rendezvous. Rank 0 takes the port of the rendezvous.\n"
      "minority: 'refuse', or 'allow': less than half may go on after a failure.\n"
      "profile: 'local' (this user on one host) or 'plaintext' (several hosts,\n"
      "unprotected).\n\n"
      "Raises Timeout (naming the missing ranks), InvalidArgument (two of one rank, other\n"
      "sizes, no address), PeerLost (a member died before all were there).",
      nb::sig("def join(rendezvous: Rendezvous | None = None, *, context: Context | None = None, "
              "rank: int | None = None, size: int | None = None, address: str | None = None, "
              "store: object = None, timeout: float | None = ..., name: str = 'world', "
              "listen: str = '', minority: str = 'refuse', profile: str = 'local') -> Group"));
}

void bind_epochs(Class& group) {
  group
      .def("subgroup", subgroup, nb::arg("members"), nb::kw_only(),
           nb::arg("timeout").none() = nb::ellipsis(), nb::arg("name") = "",
           "A group of some ranks, in this order. Only they call it, each with the same\n"
           "list.",
           nb::sig("def subgroup(self, members: collections.abc.Iterable[int], *, timeout: float "
                   "| None = ..., name: str = '') -> Group"))
      .def("split", split, nb::arg("members"), nb::kw_only(),
           nb::arg("timeout").none() = nb::ellipsis(), nb::arg("name") = "",
           "The group that this member will be in. Every member calls it, with the global\n"
           "ranks of its members: ranks of the first epoch of the group that was\n"
           "joined, in a subgroup too. Mismatch when lists contradict.",
           nb::sig("def split(self, members: collections.abc.Iterable[int], *, timeout: float | "
                   "None = ..., name: str = '') -> Group"))
      .def("shrink", shrink, nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("fence") = "none",
           "After a failure: the next epoch, of all members that are left; each of them calls\n"
           "it. Ranks close up, places stay.\n\n"
           "fence: 'kill': members of this host that have not come by the deadline are killed\n"
           "if they have given no sign of life, or were waited for, for 1 s.\n\n"
           "Raises NoQuorum where not more than half is left and the others are not proved\n"
           "dead, as they are on one host, and Timeout.",
           nb::sig("def shrink(self, *, timeout: float | None = ..., fence: str = 'none') -> None"))
      .def("grow", grow, nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
           "The next epoch, of all members that are left or have come meanwhile. Every\n"
           "member calls it. A process takes the place of one that is gone by join() with\n"
           "its rank, size and rendezvous; that join() returns when the members call this.\n\n"
           "Returns the number of the last collective that every member had completed,\n"
           "from where to go on: last_complete_sequence of a new member.\n\n"
           "Raises NoQuorum and Timeout. Only for a group that was joined, not for a subgroup.",
           nb::sig("def grow(self, *, timeout: float | None = ...) -> int"))
      .def("rebuild", rebuild, nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("fence") = "none",
           "As grow(), and waits until there is a process in every place, that of rank 0\n"
           "too. Timeout names the empty places; shrink() goes on without them.\n\n"
           "fence: 'kill': members of this host that have not come by the deadline are killed\n"
           "if they have given no sign of life, or were waited for, for 1 s.",
           nb::sig("def rebuild(self, *, timeout: float | None = ..., fence: str = 'none') -> int"))
      .def("abort", abort, nb::arg("reason"),
           "Ends everything that is pending, on all members, which get the reason; then\n"
           "shrink() or rebuild().")
      .def(
          "close", [](GroupHandle& self) { self.group.reset(); },
          "Leaves the group: the others hear of it. May be repeated.")
      .def_prop_ro(
          "rank", [](const GroupHandle& self) { return open(self)->rank().value; },
          "Of this member, now.")
      .def_prop_ro(
          "size", [](const GroupHandle& self) { return open(self)->size(); },
          "Members of this epoch.")
      .def_prop_ro(
          "epoch", [](const GroupHandle& self) { return open(self)->epoch(); },
          "1 after join(), more after each shrink(), grow() and rebuild().")
      .def_prop_ro(
          "epoch_number", [](const GroupHandle& self) { return open(self)->epoch_number(); },
          "The number on which the members of this epoch agreed: the same on all of them,\n"
          "also on one that joined later. No other epoch of this group has it. It rises,\n"
          "with holes.")
      .def_prop_ro("name", [](const GroupHandle& self) { return open(self)->name(); })
      .def_prop_ro("members", members, "By rank.",
                   nb::sig("def members(self) -> list[GroupMember]"))
      .def_prop_ro(
          "last_complete_sequence",
          [](const GroupHandle& self) { return open(self)->last_complete_sequence(); },
          "The number of the last collective that this member has completed.")
      .def_ro("context", &GroupHandle::context, "The Context it was made from.",
              nb::sig("def context(self) -> Context"))
      .def(
          "describe", [](const GroupHandle& self) { return open(self)->describe(); },
          "Members, paths, the algorithm of each operation and size: text for people.")
      .def(
          "status",
          [](const GroupHandle& self) {
            const auto group = open(self);
            const WithoutGil unlocked;
            return group->status();
          },
          "The operation in progress: from any thread, also while others wait in a collective.\n"
          "str() of it is text: 'in all_reduce #7, waiting for rank 2 (12.3 s)'.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Group"))
      .def("__exit__", leave, nb::arg("type").none(), nb::arg("value").none(),
           nb::arg("traceback").none(),
           nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"))
      .def("__repr__", [](const GroupHandle& self) -> std::string {
        if (self.group == nullptr) return "tendon.Group(closed)";
        return "tendon.Group('" + self.group->name() + "', rank " +
               std::to_string(self.group->rank().value) + " of " +
               std::to_string(self.group->size()) + ")";
      });
}

}  // namespace

std::shared_ptr<Group> open(const GroupHandle& self) {
  if (self.group == nullptr) {
    throw to_exception({ErrorCode::group_aborted, "python.group",
                        "this member has left the group: close() was called"});
  }
  return self.group;
}

Deadline until(const GroupHandle& self, nb::handle timeout) {
  return deadline_of(timeout, default_timeout_s(self.context));
}

nb::object collective_timeout(const GroupHandle& self, nb::object timeout) {
  if (!timeout.is(nb::ellipsis())) return timeout;
  return nb::float_(collective_timeout_s(self.context));
}

GroupRank rank_of(nb::handle object, const char* name) { return {rank_from(object, name)}; }

void abort_for(Group& group, const nb::python_error& error, const std::string& what) {
  const std::string reason =
      nb::cast<std::string>(error.type().attr("__name__")) + " ended its " + what;
  const WithoutGil unlocked;
  group.abort(reason);
}

void bind_group(nb::module_& module) {
  bind_parts(module);
  Class group(module, "Group", kGroupDoc);
  bind_join(group);
  bind_group_collectives(group);
  bind_group_messages(group);
  bind_epochs(group);
}

}  // namespace tendon::python
