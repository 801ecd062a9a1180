// SPDX-License-Identifier: Apache-2.0
// Transfers from one pipeline stage to the next.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <chrono>
#include <string>
#include <tendon/group/stage.hpp>

#include "errors.hpp"
#include "future.hpp"
#include "group.hpp"

namespace tendon::python {
namespace {

Tensor one_array(nb::handle array, Touch touch) {
  const GroupValues values(array, "array", touch);
  if (const Tensor* const one = values.as_tensor()) return *one;
  raise_type_error("array is a " + quoted_type(array) +
                   "; legal is one array, not a mapping or list");
}

const GroupHandle& group_from(nb::handle object, const char* name) {
  if (!nb::isinstance<GroupHandle>(object))
    raise_type_error(std::string(name) + " is " + shown(object) + "; legal is a tendon.Group");
  return nb::cast<const GroupHandle&>(object);
}

/// The array of one transfer, and the peer that sends or receives it.
struct Transfer {
  const char* what;
  Tensor tensor;
  GroupRank peer;
  /// send_to_stage_async() or recv_from_stage_async().
  Completion<void> (*start)(Group&, Group&, const Tensor&, GroupRank);
};

/// Transfers between stages. This takes several operations of both groups, so a failure ends both.
nb::object between_stages(nb::object stages, nb::object tensor_group, nb::object timeout,
                          bool async_op, const Transfer& transfer) {
  const GroupHandle& handle = group_from(stages, "stages");
  const auto outer = open(handle);
  const auto own = open(group_from(tensor_group, "tensor_group"));
  const Deadline deadline = until(handle, timeout);
  release_left_over();
  auto completion =
      without_gil([&] { return transfer.start(*outer, *own, transfer.tensor, transfer.peer); });
  if (async_op) {
    return nb::cast(make_future(handle.context, std::move(timeout), std::move(completion),
                                [stages, tensor_group] { return nb::none(); }));
  }
  Result<void> answer;
  try {
    answer = settle(completion, deadline, [&] { return late_error(transfer.what); });
  } catch (nb::python_error& error) {
    abort_for(*outer, error, transfer.what);
    abort_for(*own, error, transfer.what);
    // The caller owns its array again when it gets the exception.
    const WithoutGil unlocked;
    (void)completion.wait(std::chrono::seconds(1));
    throw;
  }
  unwrap(std::move(answer));
  return nb::none();
}

nb::object send(nb::object stages, nb::object tensor_group, nb::object array, nb::object peer,
                nb::object timeout, bool async_op) {
  return between_stages(std::move(stages), std::move(tensor_group), std::move(timeout), async_op,
                        {"send_to_stage", one_array(array, Touch::reads), rank_of(peer, "peer"),
                         [](Group& outer, Group& own, const Tensor& tensor, GroupRank to) {
                           return send_to_stage_async(outer, own, tensor, to);
                         }});
}

nb::object recv(nb::object stages, nb::object tensor_group, nb::object array, nb::object peer,
                nb::object timeout, bool async_op) {
  return between_stages(std::move(stages), std::move(tensor_group), std::move(timeout), async_op,
                        {"recv_from_stage", one_array(array, Touch::changes), rank_of(peer, "peer"),
                         [](Group& outer, Group& own, const Tensor& tensor, GroupRank from) {
                           return recv_from_stage_async(outer, own, tensor, from);
                         }});
}

}  // namespace

void bind_group_stage(nb::module_& module) {
  module.def(
      "send_to_stage", send, nb::arg("stages"), nb::arg("tensor_group"), nb::arg("array"),
      nb::arg("peer"), nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
      nb::arg("async_op") = false,
      "Sends an array that all members of a tensor-parallel group have alike to the\n"
      "group of the next pipeline stage: each member sends its share to its\n"
      "counterpart and the receivers pass on what they get, so between hosts a byte\n"
      "travels once.\n\n"
      "stages: the group in which the counterpart has the rank peer.\n"
      "tensor_group: this member's own stage, of as many members as the other.\n"
      "timeout: seconds; None: for ever; left out: that of a collective.\n"
      "async_op: returns a Future; the stage may compute, and use both groups, meanwhile.\n"
      "All members of both stages call it. Raises Mismatch where dtypes or shapes differ.",
      nb::sig("def send_to_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, "
              "timeout: float | None = ..., async_op: bool = False) -> typing.Any"));
  module.def(
      "recv_from_stage", recv, nb::arg("stages"), nb::arg("tensor_group"), nb::arg("array"),
      nb::arg("peer"), nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
      nb::arg("async_op") = false,
      "Receives what send_to_stage() sends, into an array of the same dtype and shape.\n\n"
      "timeout: seconds; None: for ever; left out: that of a collective.\n"
      "async_op: returns a Future; leave the array alone until it is done.",
      nb::sig("def recv_from_stage(stages: Group, tensor_group: Group, array: object, peer: int, "
              "*, timeout: float | None = ..., async_op: bool = False) -> typing.Any"));
}

}  // namespace tendon::python
