// SPDX-License-Identifier: Apache-2.0
// The functions that the extension for torch.distributed calls; see tendon/torch/native/table.hpp.
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tendon/tensor/dlpack.hpp>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "../tendon/torch/native/table.hpp"
#include "bindings.hpp"
#include "group.hpp"
#include "pump.hpp"

namespace tendon::torch_table {

struct Group {
  std::shared_ptr<tendon::Group> group;
};

}  // namespace tendon::torch_table

namespace tendon::python {

namespace table = torch_table;

/// An operation from its start to its outcome. The pump holds it weakly, for its deadline.
class Started {
 public:
  explicit Started(const Error& error) : ended_(true), error_(error.message()) {}
  explicit Started(Completion<void> completion) : completion_(std::move(completion)) {}
  explicit Started(Completion<Received> completion) : completion_(std::move(completion)) {}

  [[nodiscard]] bool is_done() const {
    return std::visit(
        [](const auto& completion) {
          if constexpr (kIsNone<decltype(completion)>)
            return true;
          else
            return completion.done();
        },
        completion_);
  }

  [[nodiscard]] bool wait(Deadline deadline) TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    if (ended_) return true;
    return std::visit(
        [&](auto& completion) {
          if constexpr (kIsNone<decltype(completion)>)
            return true;
          else
            return completion.done_by(deadline);
        },
        completion_);
  }

  void expire() TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    std::visit(
        [](auto& completion) {
          if constexpr (!kIsNone<decltype(completion)>) completion.expire();
        },
        completion_);
  }

  /// `self` keeps it alive until the callback: the caller may drop its share at any time.
  void notify(const std::shared_ptr<Started>& self, Deadline deadline, void (*done)(void*),
              void* with) TENDON_EXCLUDES(mutex_) {
    const auto tell = [done, with] { done(with); };
    bool is_called_back = false;
    {
      const detail::Lock lock(mutex_);
      if (!ended_) {
        is_called_back = is_called_back_ = true;
        std::visit(
            [&](auto& completion) {
              if constexpr (!kIsNone<decltype(completion)>) {
                completion.on_done([self, tell](auto result) {
                  self->end(std::move(result));
                  Pump::get().post(tell);
                });
              }
            },
            completion_);
      }
    }
    if (!is_called_back) return Pump::get().post(tell);
    Pump::get().post_at(deadline, self, [weak = std::weak_ptr<Started>(self)] {
      if (const auto started = weak.lock(); started && !started->is_done()) started->expire();
    });
  }

  [[nodiscard]] table::Outcome outcome() TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    if (!ended_ && !is_called_back_) {
      std::visit(
          [&](auto& completion) TENDON_REQUIRES(mutex_) {
            if constexpr (!kIsNone<decltype(completion)>) keep(completion.wait(Deadline::now()));
          },
          completion_);
    }
    // The operation is done; the callback holds the result and is about to store it.
    while (!ended_) changed_.wait(mutex_);
    return {.error = error_ ? error_->c_str() : nullptr, .rank = received_.rank.value};
  }

 private:
  template <class T>
  static constexpr bool kIsNone = std::is_same_v<std::decay_t<T>, std::monostate>;

  template <class T>
  void end(Result<T> result) TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    keep(std::move(result));
    changed_.notify_all();
  }

  template <class T>
  void keep(Result<T> result) TENDON_REQUIRES(mutex_) {
    ended_ = true;
    if (!result) {
      error_ = result.error().message();
    } else if constexpr (std::is_same_v<T, Received>) {
      received_ = *result;
    }
  }

  detail::Mutex mutex_;
  detail::CondVar changed_;
  std::variant<std::monostate, Completion<void>, Completion<Received>> completion_;
  bool is_called_back_ TENDON_GUARDED_BY(mutex_) = false;
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
  std::optional<std::string> error_ TENDON_GUARDED_BY(mutex_);
  Received received_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::python

namespace tendon::torch_table {

struct Operation {
  std::shared_ptr<python::Started> started;
};

}  // namespace tendon::torch_table

namespace tendon::python {
namespace {

using table::Kind;

Result<std::vector<Tensor>> take(const table::Tensors& given) {
  std::vector<Tensor> taken;
  std::optional<Error> wrong;
  taken.reserve(given.count);
  for (std::uint64_t i = 0; i < given.count; ++i) {
    // Takes ownership of every tensor, also after a refused one.
    auto tensor = from_dlpack(static_cast<dlpack::DLManagedTensorVersioned*>(given.tensors[i]));
    if (!tensor) {
      if (!wrong) wrong = std::move(tensor).error();
    } else if (tensor->device() != cpu()) {
      if (!wrong) {
        wrong = Error{ErrorCode::unsupported_device, "python.torch",
                      "a tensor lies on " + to_string(tensor->device()) + "; legal is cpu"};
      }
    } else {
      taken.push_back(*std::move(tensor));
    }
  }
  if (wrong) return *std::move(wrong);
  return taken;
}

Tensors as_operand(const std::vector<Tensor>& tensors, bool is_list) {
  if (!is_list && tensors.size() == 1) return tensors.front();
  return tensors;
}

std::shared_ptr<Started> begin(tendon::Group& group, const table::Request& request) {
  auto given = take(request.inputs);
  auto wanted = take(request.outputs);
  if (!given) return std::make_shared<Started>(given.error());
  if (!wanted) return std::make_shared<Started>(wanted.error());
  const auto kind = enumerator_from<ReduceKind>(request.reduce);
  if (!kind) {
    return std::make_shared<Started>(
        Error{ErrorCode::invalid_argument, "python.torch",
              "no reduce operation has the number " + std::to_string(request.reduce)});
  }
  const ReduceOp op(*kind, request.factor);
  const Tensors in = as_operand(*given, request.inputs.is_list);
  const Tensors out = as_operand(*wanted, request.outputs.is_list);
  const GroupRank rank{request.rank};
  switch (request.kind) {
    case Kind::all_reduce:
      return std::make_shared<Started>(group.all_reduce_async(in, op));
    case Kind::reduce:
      return std::make_shared<Started>(group.reduce_async(in, op, rank));
    case Kind::broadcast:
      return std::make_shared<Started>(group.broadcast_async(in, rank));
    case Kind::all_gather:
      return std::make_shared<Started>(group.all_gather_async(in, out));
    case Kind::gather:
      return std::make_shared<Started>(group.gather_async(in, out, rank));
    case Kind::scatter:
      return std::make_shared<Started>(group.scatter_async(in, out, rank));
    case Kind::reduce_scatter:
      return std::make_shared<Started>(group.reduce_scatter_async(in, out, op));
    case Kind::all_to_all:
      return std::make_shared<Started>(group.all_to_all_async(in, out));
    case Kind::barrier:
      return std::make_shared<Started>(group.barrier_async());
    case Kind::send:
      return std::make_shared<Started>(group.send_async(in, To{rank, request.tag}));
    case Kind::recv: {
      From from{.rank = rank, .tag = request.tag};
      if (request.from_any) from.rank.reset();
      return std::make_shared<Started>(group.recv_async(out, from));
    }
  }
  return std::make_shared<Started>(Error{ErrorCode::invalid_argument, "python.torch",
                                         "the extension asks for an unknown operation"});
}

Deadline after(std::int64_t most_ns) {
  if (most_ns == std::numeric_limits<std::int64_t>::max()) return Deadline::never();
  return Deadline(std::chrono::nanoseconds(most_ns));
}

table::Group* open_group(PyObject* object) {
  try {
    const nb::handle group(object);
    if (!nb::isinstance<GroupHandle>(group))
      raise_type_error("group is a " + quoted_type(group) + "; legal is a tendon.Group");
    return new table::Group{open(nb::cast<const GroupHandle&>(group))};
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

constexpr table::Table kTable = {
    .open = open_group,
    .close = [](table::Group* group) { delete group; },
    .abort = [](table::Group* group, const char* reason) { group->group->abort(reason); },
    .has_ended =
        [](table::Group* group) {
          return group->group->status().state == GroupStatus::State::ended;
        },
    .start =
        [](table::Group* group, const table::Request& request) {
          return new table::Operation{begin(*group->group, request)};
        },
    .is_done = [](const table::Operation* operation) { return operation->started->is_done(); },
    .wait = [](table::Operation* operation,
               std::int64_t most_ns) { return operation->started->wait(after(most_ns)); },
    .expire = [](table::Operation* operation) { operation->started->expire(); },
    .notify =
        [](table::Operation* operation, std::int64_t most_ns, void (*done)(void*), void* with) {
          operation->started->notify(operation->started, after(most_ns), done, with);
        },
    .outcome = [](table::Operation* operation) { return operation->started->outcome(); },
    .drop = [](table::Operation* operation) { delete operation; },
};

}  // namespace

void bind_torch_table(nb::module_& module) {
  module.attr("_torch_table") =
      nb::steal(PyCapsule_New(const_cast<table::Table*>(&kTable), table::kCapsule, nullptr));
  module.def("_stop_pump", [] {
    const WithoutGil unlocked;
    Pump::get().stop();
  });
}

}  // namespace tendon::python
