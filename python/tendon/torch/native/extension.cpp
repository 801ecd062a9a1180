// SPDX-License-Identifier: Apache-2.0
// The extension module _tendon_torch: the backend "tendon" of torch.distributed. `python -m
// tendon.torch build` compiles it against the installed torch.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <string>

#include "backend.hpp"

namespace tendon::torch_extension {
namespace {

py::module_ groups() { return py::module_::import("tendon.torch._groups"); }

/// Returns the result of `call`; raises its Python exception as torch raises its own from C++.
template <class F>
auto in_python(F call) {
  const py::gil_scoped_acquire gil;
  return call();
}

double seconds(milliseconds timeout) { return std::chrono::duration<double>(timeout).count(); }

}  // namespace

WorkPtr Backend::allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  TENDON_REFUSE_IF(tensors.size() != 1, "allreduce_sparse: ", tensors.size(),
                   " tensors; legal is one");
  TENDON_REFUSE_IF(opts.reduceOp.op_ != c10d::ReduceOp::SUM,
                   "allreduce_sparse: another operation than SUM, the only legal one");
  // Finished when it returns: the size of a member's part is known only when all members have sent
  // theirs.
  const auto gather = [&](const at::Tensor& mine, TensorList outputs) {
    const py::gil_scoped_release unlocked;
    TensorList inputs{mine};
    TensorLists into{std::move(outputs)};
    c10d::AllgatherOptions gathering;
    gathering.timeout = opts.timeout;
    allgather(into, inputs, gathering)->wait(kNoTimeout);
  };
  in_python([&] {
    py::module_::import("tendon.torch._sparse")
        .attr("sum_of_sparse")(tensors[0], size_, py::cpp_function(gather));
    return 0;
  });
  Starting over(*this, "tendon:all_reduce_sparse", OpType::_ALLREDUCE_SPARSE, {}, {tensors},
                opts.timeout);
  return over.work();
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  (void)open();
  in_python([&] {
    groups().attr("monitored_barrier")(member_, seconds(effective(opts.timeout)), wait_all_ranks);
    return 0;
  });
  ++issued_;
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& opts) {
  (void)open();
  return in_python([&]() -> c10::intrusive_ptr<c10d::Backend> {
    const py::object made =
        groups().attr("part_of")(member_, ranks, opts->group_name, opts->timeout);
    if (made.is_none()) return {};
    return made.cast<c10::intrusive_ptr<c10d::Backend>>();
  });
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& excluded, int,
                                                  const c10::intrusive_ptr<Options>&) {
  (void)open();
  return in_python([&] {
    return groups()
        .attr("without")(member_, excluded, milliseconds(timeout_.load()))
        .cast<c10::intrusive_ptr<c10d::Backend>>();
  });
}

void Backend::shutdown() {
  while (const auto work = pending_.take()) {
    // The message may never arrive.
    if (work->is_receive() && !work->over()) continue;
    try {
      work->wait(kNoTimeout);
    } catch (const c10::Error&) {
    }
  }
  std::shared_ptr<OpenGroup> ending;
  {
    const std::lock_guard lock(group_mutex_);
    ending = std::move(group_);
    group_ = nullptr;
  }
  if (ending == nullptr || Py_IsInitialized() == 0) return;
  in_python([&] {
    groups().attr("close")(member_);
    return 0;
  });
}

namespace {

c10::intrusive_ptr<c10d::Backend> make(const py::object& member, const std::string& name) {
  const auto capsule = py::module_::import("tendon._tendon").attr("_torch_table");
  const auto* const table =
      static_cast<const Table*>(PyCapsule_GetPointer(capsule.ptr(), torch_table::kCapsule));
  if (table == nullptr) throw py::error_already_set();
  torch_table::Group* const group = table->open(py::object(member.attr("group")).ptr());
  if (group == nullptr) throw py::error_already_set();
  return c10::make_intrusive<Backend>(
      *table, group, member.attr("rank").cast<int>(), member.attr("size").cast<int>(),
      member.attr("timeout").cast<milliseconds>(), name,
      member.attr("global_ranks").cast<std::vector<std::uint64_t>>(), member);
}

/// Runs before anything of torch is used: another version may lay out its classes differently.
void check_versions() {
  const auto refuse = [](const std::string& what) {
    throw py::import_error(what + "; `python -m tendon.torch build` compiles it anew");
  };
  const auto torch = py::module_::import("torch");
  const auto version = py::str(torch.attr("__version__")).cast<std::string>();
  const std::string compiled =
      std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + ".";
  if (version.compare(0, compiled.size(), compiled) != 0) {
    refuse("the extension of the backend 'tendon' was compiled against torch " + compiled +
           "x, and this is torch " + version);
  }
  if (torch.attr("_C").attr("_GLIBCXX_USE_CXX11_ABI").cast<bool>() != bool(_GLIBCXX_USE_CXX11_ABI))
    refuse("the extension of the backend 'tendon' was compiled with another C++11 ABI than torch");
  const auto capsule = py::module_::import("tendon._tendon").attr("_torch_table");
  const auto* const table =
      static_cast<const Table*>(PyCapsule_GetPointer(capsule.ptr(), torch_table::kCapsule));
  if (table == nullptr) throw py::error_already_set();
  if (table->version != torch_table::kVersion)
    refuse("the extension of the backend 'tendon' was compiled for another release of pytendon");
}

}  // namespace

PYBIND11_MODULE(_tendon_torch, module) {
  check_versions();
  module.doc() = "The backend \"tendon\" of torch.distributed; tendon.torch makes it.";
  module.def("make", &make, py::arg("member"), py::arg("name"));
  module.def("finish", &Completer::finish, py::call_guard<py::gil_scoped_release>());
  py::module_::import("atexit").attr("register")(module.attr("finish"));
}

}  // namespace tendon::torch_extension
