// SPDX-License-Identifier: Apache-2.0
// From one pipeline stage to the next.
#include <string>
#include <tendon/group/stage.hpp>

#include "errors.hpp"
#include "group.hpp"

namespace tendon::python {
namespace {

Tensor one_array(nb::handle array, Touch touch) {
  const GroupValues values(array, "array", touch);
  if (const Tensor* const one = values.as_tensor()) return *one;
  raise_type_error("array is a " + quoted_type(array) +
                   "; legal is one array, not a mapping or list");
}

/// `call` gets both groups. It takes several operations of both, so what cannot go on ends in both.
template <class F>
void between_stages(const GroupHandle& stages, const GroupHandle& tensor_group, nb::handle timeout,
                    const char* what, F call) {
  const auto outer = open(stages);
  const auto own = open(tensor_group);
  release_left_over();
  unwrap(wait_beside(
      until(stages, timeout), [outer, own, call](Deadline end) { return call(*outer, *own, end); },
      kSlice,
      [&] {
        try {
          look_at_signals();
        } catch (nb::python_error& error) {
          abort_for(*outer, error, what);
          abort_for(*own, error, what);
          throw;
        }
      }));
}

void send(const GroupHandle& stages, const GroupHandle& tensor_group, nb::object array,
          nb::object peer, nb::object timeout) {
  between_stages(stages, tensor_group, timeout, "send_to_stage",
                 [tensor = one_array(array, Touch::reads), to = rank_of(peer, "peer")](
                     Group& outer, Group& own, Deadline end) {
                   return send_to_stage(outer, own, tensor, to, end);
                 });
}

void recv(const GroupHandle& stages, const GroupHandle& tensor_group, nb::object array,
          nb::object peer, nb::object timeout) {
  between_stages(stages, tensor_group, timeout, "recv_from_stage",
                 [tensor = one_array(array, Touch::changes), from = rank_of(peer, "peer")](
                     Group& outer, Group& own, Deadline end) {
                   return recv_from_stage(outer, own, tensor, from, end);
                 });
}

}  // namespace

void bind_group_stage(nb::module_& module) {
  module.def(
      "send_to_stage", send, nb::arg("stages"), nb::arg("tensor_group"), nb::arg("array"),
      nb::arg("peer"), nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
      "Sends an array that all members of a tensor-parallel group have alike to the\n"
      "group of the next pipeline stage: each member sends its share to its\n"
      "counterpart and the receivers gather, so between hosts a byte travels once.\n\n"
      "stages: the group in which the counterpart has the rank peer.\n"
      "tensor_group: this member's own stage, of as many members as the other.\n"
      "All members of both stages call it. Raises Mismatch where dtypes or shapes differ.",
      nb::sig("def send_to_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, "
              "timeout: float | None = ...) -> None"));
  module.def(
      "recv_from_stage", recv, nb::arg("stages"), nb::arg("tensor_group"), nb::arg("array"),
      nb::arg("peer"), nb::kw_only(), nb::arg("timeout").none() = nb::ellipsis(),
      "Receives what send_to_stage() sends, into an array of the same dtype and shape.",
      nb::sig("def recv_from_stage(stages: Group, tensor_group: Group, array: object, peer: int, "
              "*, timeout: float | None = ...) -> None"));
}

}  // namespace tendon::python
