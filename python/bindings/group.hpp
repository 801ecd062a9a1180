// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tendon/group/group.hpp>
#include <utility>

#include "background.hpp"
#include "group_values.hpp"
#include "rendezvous.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Group. A call that continues after Ctrl-C shares the group.
struct GroupHandle {
  std::shared_ptr<Group> group;  ///< null: closed
  nb::object context;
  std::shared_ptr<PythonStore> store = nullptr;  ///< where members find rank 0, also a later one
};

/// Returns the group, or throws GroupAborted if it was closed.
[[nodiscard]] std::shared_ptr<Group> open(const GroupHandle& self);
[[nodiscard]] Deadline until(const GroupHandle& self, nb::handle timeout);
/// The `timeout` of a collective, or the default if it was left out.
[[nodiscard]] nb::object collective_timeout(const GroupHandle& self, nb::object timeout);
/// TypeError and ValueError call it `name`.
[[nodiscard]] GroupRank rank_of(nb::handle object, const char* name);

/// Ends the running operation for all members after a signal handler raised: the operation can be
/// neither undone nor restarted.
void abort_for(Group& group, const nb::python_error& error, const std::string& what);

/// The objects that a call keeps alive until it has ended.
using Keep = std::shared_ptr<GroupValues>;

[[nodiscard]] inline Keep values_of(nb::object object, const char* name, Touch touch) {
  return std::make_shared<GroupValues>(taken_once(std::move(object)), name, touch);
}

/// A collective that exists only as a waiting call.
template <class F>
auto collective_beside(const GroupHandle& self, const char* what, nb::object timeout, F call) {
  const std::shared_ptr<Group> group = open(self);
  const Deadline deadline = until(self, collective_timeout(self, std::move(timeout)));
  note_running_loop(deadline);
  release_left_over();
  return unwrap(wait_beside(
      deadline, [group, call = std::move(call)](Deadline end) mutable { return call(*group, end); },
      kSlice,
      [&] {
        try {
          look_at_signals();
        } catch (nb::python_error& error) {
          abort_for(*group, error, what);
          throw;
        }
      }));
}

// Bind parts of the class.
void bind_group_collectives(nb::class_<GroupHandle>& group);
void bind_group_messages(nb::class_<GroupHandle>& group);

}  // namespace tendon::python
