// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <tendon/observe/log.hpp>

#include "future.hpp"
#include "group.hpp"
#include "reduce_op.hpp"
#include "rendezvous.hpp"
#include "timeouts.hpp"

namespace tendon::python {
namespace {

/// Works as settle(), and logs a long wait once.
Result<void> settle_telling(Completion<void>& completion, Group& group, Deadline deadline) {
  const Deadline quiet = earlier(deadline, kTellAfter);
  auto answer = wait_for(completion, quiet);
  if (answer || !is_pending(answer.error())) return answer;
  if (!deadline.has_passed()) {
    const WithoutGil unlocked;
    log(LogLevel::warn, "group.collective",
        "group \"" + group.name() + "\", rank " + std::to_string(group.rank().value) + ": " +
            to_string(group.status()));
  }
  return settle(completion, deadline, [] { return late_error("group.collective"); });
}

/// Runs a collective: `start(Group&)` returns its Completion, `result()` the user's value.
template <class Start, class MakeResult>
nb::object collective(nb::object self, const char* what, nb::object timeout, bool async_op,
                      Start start, MakeResult result) {
  const auto& handle = nb::cast<const GroupHandle&>(self);
  const std::shared_ptr<Group> group = open(handle);
  timeout = collective_timeout(handle, std::move(timeout));
  const Deadline deadline = until(handle, timeout);
  release_left_over();
  auto completion = without_gil([&] { return start(*group); });
  if (async_op) {
    return nb::cast(make_future(handle.context, std::move(timeout), std::move(completion),
                                [self, result] { return result(); }));
  }
  Result<void> answer;
  try {
    answer = settle_telling(completion, *group, deadline);
  } catch (nb::python_error& error) {
    abort_for(*group, error, what);
    // The caller owns its arrays again when it gets the exception.
    const WithoutGil unlocked;
    (void)completion.wait(std::chrono::seconds(1));
    throw;
  }
  unwrap(std::move(answer));
  return result();
}

nb::object nothing() { return nb::none(); }

/// Calls the function of tendon._group with this name, which makes arrays like others.
nb::object make_like(const char* name, nb::handle values, std::uint32_t count) {
  return nb::module_::import_("tendon._group").attr(name)(values, count);
}

nb::object all_reduce(nb::object self, nb::object values, nb::object op, nb::object timeout,
                      bool async_op) {
  const ReduceOp how = reduce_op_from(op);
  const Keep kept = values_of(values, "values", Touch::changes);
  return collective(
      std::move(self), "all_reduce", std::move(timeout), async_op,
      [&](Group& group) { return group.all_reduce_async(kept->tensors(), how); }, nothing);
}

nb::object reduce(nb::object self, nb::object values, nb::object op, nb::object root,
                  nb::object timeout, bool async_op) {
  const ReduceOp how = reduce_op_from(op);
  const GroupRank to = rank_of(root, "root");
  const bool here = open(nb::cast<const GroupHandle&>(self))->rank() == to;
  const Keep kept = values_of(values, "values", here ? Touch::changes : Touch::reads);
  return collective(
      std::move(self), "reduce", std::move(timeout), async_op,
      [&](Group& group) { return group.reduce_async(kept->tensors(), how, to); }, nothing);
}

nb::object broadcast(nb::object self, nb::object values, nb::object root, nb::object timeout,
                     bool async_op) {
  const GroupRank from = rank_of(root, "root");
  const bool here = open(nb::cast<const GroupHandle&>(self))->rank() == from;
  const Keep kept = values_of(values, "values", here ? Touch::reads : Touch::changes);
  return collective(
      std::move(self), "broadcast", std::move(timeout), async_op,
      [&](Group& group) { return group.broadcast_async(kept->tensors(), from); }, nothing);
}

nb::object all_gather(nb::object self, nb::object input, nb::object outputs, nb::object timeout,
                      bool async_op) {
  input = taken_once(std::move(input));
  outputs = taken_once(std::move(outputs));
  const Keep give = values_of(input, "input", Touch::reads);
  if (outputs.is_none())
    outputs = make_like("blocks_like", input, open(nb::cast<const GroupHandle&>(self))->size());
  const Keep get = values_of(outputs, "outputs", Touch::changes);
  return collective(
      std::move(self), "all_gather", std::move(timeout), async_op,
      [&](Group& group) { return group.all_gather_async(give->tensors(), get->tensors()); },
      [outputs] { return outputs; });
}

nb::object gather(nb::object self, nb::object input, nb::object root, nb::object outputs,
                  nb::object timeout, bool async_op) {
  const GroupRank to = rank_of(root, "root");
  const auto group = open(nb::cast<const GroupHandle&>(self));
  input = taken_once(std::move(input));
  outputs = taken_once(std::move(outputs));
  const Keep give = values_of(input, "input", Touch::reads);
  auto get = std::make_shared<GroupValues>();
  if (group->rank() != to) {
    outputs = nb::none();
  } else {
    if (outputs.is_none()) outputs = make_like("blocks_like", input, group->size());
    get = values_of(outputs, "outputs", Touch::changes);
  }
  return collective(
      std::move(self), "gather", std::move(timeout), async_op,
      [&](Group& all) { return all.gather_async(give->tensors(), get->tensors(), to); },
      [outputs] { return outputs; });
}

nb::object scatter(nb::object self, nb::object inputs, nb::object root, nb::object output,
                   nb::object timeout, bool async_op) {
  const GroupRank from = rank_of(root, "root");
  const bool here = open(nb::cast<const GroupHandle&>(self))->rank() == from;
  const Keep give =
      here ? values_of(inputs, "inputs", Touch::reads) : std::make_shared<GroupValues>();
  const Keep get = values_of(output, "output", Touch::changes);
  return collective(
      std::move(self), "scatter", std::move(timeout), async_op,
      [&](Group& group) { return group.scatter_async(give->tensors(), get->tensors(), from); },
      nothing);
}

nb::object reduce_scatter(nb::object self, nb::object inputs, nb::object op, nb::object output,
                          nb::object timeout, bool async_op) {
  const ReduceOp how = reduce_op_from(op);
  const Keep give = values_of(inputs, "inputs", Touch::reads);
  const Keep get = values_of(output, "output", Touch::changes);
  return collective(
      std::move(self), "reduce_scatter", std::move(timeout), async_op,
      [&](Group& group) {
        return group.reduce_scatter_async(give->tensors(), get->tensors(), how);
      },
      nothing);
}

nb::object all_to_all(nb::object self, nb::object inputs, nb::object outputs, nb::object timeout,
                      bool async_op) {
  inputs = taken_once(std::move(inputs));
  outputs = taken_once(std::move(outputs));
  const Keep give = values_of(inputs, "inputs", Touch::reads);
  if (outputs.is_none()) outputs = nb::module_::import_("tendon._group").attr("like")(inputs);
  const Keep get = values_of(outputs, "outputs", Touch::changes);
  return collective(
      std::move(self), "all_to_all", std::move(timeout), async_op,
      [&](Group& group) { return group.all_to_all_async(give->tensors(), get->tensors()); },
      [outputs] { return outputs; });
}

nb::object barrier(nb::object self, nb::object timeout, bool async_op) {
  return collective(
      std::move(self), "barrier", std::move(timeout), async_op,
      [](Group& group) { return group.barrier_async(); }, nothing);
}

void monitored_barrier(const GroupHandle& self, nb::object timeout) {
  collective_beside(self, "monitored_barrier", timeout,
                    [](Group& group, Deadline end) { return group.monitored_barrier(end); });
}

}  // namespace

// Outputs are keyword arguments only. torch.distributed has them first, so positional ones would
// swap inputs and outputs.
void bind_group_collectives(nb::class_<GroupHandle>& group) {
  group
      .def("all_reduce", all_reduce, nb::arg("values").none(), nb::arg("op") = "sum", nb::kw_only(),
           nb::arg("timeout").none() = nb::ellipsis(), nb::arg("async_op") = false,
           "Replaces the values of every member by their combination.\n\n"
           "op: a ReduceOp or its name.",
           nb::sig("def all_reduce(self, values: object, op: ReduceOp | str = 'sum', *, timeout: "
                   "float | None = ..., async_op: bool = False) -> typing.Any"))
      .def("reduce", reduce, nb::arg("values").none(), nb::arg("op") = "sum", nb::arg("root") = 0,
           nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(), nb::arg("async_op") = false,
           "all_reduce() whose result is on root alone; the others' values are read.",
           nb::sig("def reduce(self, values: object, op: ReduceOp | str = 'sum', root: int = 0, *, "
                   "timeout: float | None = ..., async_op: bool = False) -> typing.Any"))
      .def("broadcast", broadcast, nb::arg("values").none(), nb::arg("root") = 0, nb::kw_only(),
           nb::arg("timeout").none() = nb::ellipsis(), nb::arg("async_op") = false,
           "Gives all members the values of root, which all have arrays for.",
           nb::sig("def broadcast(self, values: object, root: int = 0, *, timeout: float | None = "
                   "..., async_op: bool = False) -> typing.Any"))
      .def("all_gather", all_gather, nb::arg("input").none(), nb::kw_only(),
           nb::arg("outputs").none() = nb::none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("async_op") = false,
           "Returns what every member gave, in outputs.\n\n"
           "outputs: one array, cut in equal parts, or a list of one for each member,\n"
           "of any sizes. Made where it is left out: of an array a stack of all, with a\n"
           "new first dimension; of a mapping a list.",
           nb::sig("def all_gather(self, input: object, *, outputs: object = None, timeout: float "
                   "| None = ..., async_op: bool = False) -> typing.Any"))
      .def("gather", gather, nb::arg("input").none(), nb::arg("root") = 0, nb::kw_only(),
           nb::arg("outputs").none() = nb::none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("async_op") = false,
           "all_gather() on root alone; the others get None, and their outputs are not\n"
           "looked at.",
           nb::sig("def gather(self, input: object, root: int = 0, *, outputs: object = None, "
                   "timeout: float | None = ..., async_op: bool = False) -> typing.Any"))
      .def("scatter", scatter, nb::arg("inputs").none(), nb::arg("root") = 0, nb::kw_only(),
           nb::arg("output").none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("async_op") = false,
           "Gives each member its part of root's inputs; the others' are not looked at.\n\n"
           "inputs: one array, cut in equal parts, or a list of one for each member.",
           nb::sig("def scatter(self, inputs: object, root: int = 0, *, output: object, timeout: "
                   "float | None = ..., async_op: bool = False) -> typing.Any"))
      .def(
          "reduce_scatter", reduce_scatter, nb::arg("inputs").none(), nb::arg("op") = "sum",
          nb::kw_only(), nb::arg("output").none(), nb::arg("timeout").none() = nb::ellipsis(),
          nb::arg("async_op") = false, "Combines all members' inputs; each member gets its part.",
          nb::sig("def reduce_scatter(self, inputs: object, op: ReduceOp | str = 'sum', *, output: "
                  "object, timeout: float | None = ..., async_op: bool = False) -> typing.Any"))
      .def("all_to_all", all_to_all, nb::arg("inputs").none(), nb::kw_only(),
           nb::arg("outputs").none() = nb::none(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("async_op") = false,
           "Part i of inputs goes to member i; returns what came, in outputs.\n\n"
           "outputs: made like inputs where it is left out.",
           nb::sig("def all_to_all(self, inputs: object, *, outputs: object = None, timeout: float "
                   "| None = ..., async_op: bool = False) -> typing.Any"))
      .def("barrier", barrier, nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
           nb::arg("async_op") = false, "Returns when every member has called it.",
           nb::sig("def barrier(self, *, timeout: float | None = ..., async_op: bool = False) -> "
                   "typing.Any"))
      .def("monitored_barrier", monitored_barrier, nb::kw_only(),
           nb::arg("timeout").none() = nb::ellipsis(),
           "A barrier whose Timeout lists all members that did not come.",
           nb::sig("def monitored_barrier(self, *, timeout: float | None = ...) -> None"));
}

}  // namespace tendon::python
