// SPDX-License-Identifier: Apache-2.0
#include "rendezvous.hpp"

#include <nanobind/stl/string.h>

#include <limits>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>

#include "bindings.hpp"
#include "deferred.hpp"
#include "errors.hpp"

namespace tendon::python {

class PythonStore final : public RendezvousStore {
 public:
  explicit PythonStore(nb::handle store)
      : held_(share(std::make_unique<Held>(store))),
        host_(nb::cast<std::string>(
            nb::module_::import_("tendon._store").attr("host_of")(nb::handle(store)))) {}

  [[nodiscard]] std::string host() const override { return host_; }
  // Called by the thread in Group::join, without the GIL.
  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override {
    TENDON_CHECK(ask({std::string(key), std::string(value)}, deadline));
    return {};
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return ask({std::string(key), std::nullopt}, deadline);
  }

  // Called by the thread that waits in Group.join, with the GIL.
  void serve() {
    std::optional<Question> question;
    {
      const detail::Lock lock(mutex_);
      if (!question_ || answer_) return;
      question = question_;
    }
    const auto is_still_asked = [&]() TENDON_REQUIRES(mutex_) {
      return question_ && question_->number == question->number;
    };
    const nb::module_ adapter = nb::module_::import_("tendon._store");
    std::string answer;
    if (question->value) {
      adapter.attr("set_text")(held_->store, question->key, *question->value);
    } else {
      const nb::object found = adapter.attr("get_text")(held_->store, question->key);
      if (found.is_none()) {
        const detail::Lock lock(mutex_);
        if (is_still_asked()) question_->is_missing = true;
        return;
      }
      answer = nb::cast<std::string>(found);
    }
    const detail::Lock lock(mutex_);
    if (!is_still_asked()) return;
    answer_ = std::move(answer);
    changed_.notify_all();
  }
  void stop() {
    const detail::Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  void start() {
    const detail::Lock lock(mutex_);
    stopped_ = false;
  }

 private:
  struct Held : Deferred {
    explicit Held(nb::handle object) : store(nb::borrow(object)) {}
    nb::object store;
  };
  struct Question {
    std::string key;
    std::optional<std::string> value = {};  // the value to set
    std::uint64_t number = 0;
    bool is_missing = false;  // the store answered that it lacks the key
  };

  Result<std::string> ask(Question question, Deadline deadline) {
    const std::string key = question.key;
    const bool is_setting = question.value.has_value();
    // A missing key is a `timeout`.
    const auto nobody = [&](bool is_missing) {
      if (is_missing)
        return Error{ErrorCode::timeout, "group.rendezvous", "nobody has set it by the deadline"};
      return Error{ErrorCode::unreachable, "group.rendezvous",
                   "the store has not answered by the deadline: " +
                       std::string(is_setting ? "set" : "get") + "('" + key + "')"};
    };
    const detail::Lock lock(mutex_);
    // One call at a time: several groups may share one store.
    while (is_asked_)
      if (!changed_.wait_until(mutex_, deadline)) break;
    if (is_asked_) return nobody(false);
    is_asked_ = true;
    question_ = std::move(question);
    question_->number = ++asked_count_;
    answer_.reset();
    changed_.notify_all();
    while (!stopped_ && !answer_.has_value())
      if (!changed_.wait_until(mutex_, deadline)) break;
    is_asked_ = false;
    changed_.notify_all();
    const bool is_missing = question_ && question_->is_missing;
    question_.reset();
    if (answer_) return *std::move(answer_);
    if (stopped_)
      return Error{ErrorCode::cancelled, "group.rendezvous", "the store is not asked any more"};
    return nobody(is_missing);
  }

  const std::shared_ptr<Held> held_;
  const std::string host_;
  detail::Mutex mutex_;
  bool is_asked_ TENDON_GUARDED_BY(mutex_) = false;  // a call waits for the answer
  std::uint64_t asked_count_ TENDON_GUARDED_BY(mutex_) = 0;
  detail::CondVar changed_;
  std::optional<Question> question_ TENDON_GUARDED_BY(mutex_);
  std::optional<std::string> answer_ TENDON_GUARDED_BY(mutex_);
  bool stopped_ TENDON_GUARDED_BY(mutex_) = false;
};

namespace {

constexpr const char* kRendezvousDoc =
    "How the members of a group find each other, and which of them this is.\n\n"
    "Made by from_environment(), at() or through(); what is wrong with it is said\n"
    "by Group.join.";

RendezvousHandle through(nb::handle store, std::uint32_t rank, std::uint32_t size) {
  for (const char* method : {"set", "get"}) {
    if (!nb::hasattr(store, method)) {
      raise_type_error("store is a " + quoted_type(store) +
                       "; legal is an object with set, get and wait, such as a torch Store");
    }
  }
  auto made = make_store(store);
  return {Rendezvous::through(made, GroupRank{rank}, size), made};
}

std::string text_of(const Rendezvous& rendezvous) {
  if (rendezvous.problem()) return "tendon.Rendezvous(" + rendezvous.problem()->detail + ")";
  return "tendon.Rendezvous(rank " + std::to_string(rendezvous.rank().value) + " of " +
         std::to_string(rendezvous.size()) +
         (rendezvous.store() != nullptr  ? " through a store"
          : rendezvous.address().empty() ? ""
                                         : " at " + rendezvous.address()) +
         ")";
}

}  // namespace

std::shared_ptr<PythonStore> make_store(nb::handle store) {
  return std::make_shared<PythonStore>(store);
}

void serve(PythonStore& store) { store.serve(); }
void start_serving(PythonStore& store) { store.start(); }
void stop_serving(PythonStore& store) { store.stop(); }

std::uint32_t rank_from(nb::handle object, const char* name) {
  const auto wrong = [&](const std::string& what) {
    return std::string(name) + " is " + what + "; legal are whole numbers from 0 to 2^32 - 1";
  };
  if (!PyIndex_Check(object.ptr()) || PyBool_Check(object.ptr()))
    raise_type_error(wrong("a " + quoted_type(object)));
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  if (value > std::numeric_limits<std::uint32_t>::max())
    raise_value_error(wrong(nb::cast<std::string>(nb::str(number))));
  return static_cast<std::uint32_t>(value);
}

RendezvousHandle rendezvous_from(nb::handle rendezvous, nb::handle rank, nb::handle size,
                                 nb::handle address, nb::handle store) {
  if (!rendezvous.is_none()) {
    if (!nb::isinstance<RendezvousHandle>(rendezvous)) {
      raise_type_error("rendezvous is a " + quoted_type(rendezvous) +
                       "; legal are a tendon.Rendezvous and None (the environment)");
    }
    if (!rank.is_none() || !size.is_none() || !address.is_none() || !store.is_none()) {
      raise_value_error(
          "rendezvous says rank, size and place already; leave out rank, size, address and store");
    }
    return nb::cast<const RendezvousHandle&>(rendezvous);
  }
  const bool placed = !address.is_none() || !store.is_none();
  if (!placed && rank.is_none() && size.is_none()) return {Rendezvous::from_environment()};
  if (!placed || rank.is_none() || size.is_none() || (!address.is_none() && !store.is_none())) {
    raise_value_error(
        "the arguments name no rendezvous; legal are rank and size with either address or store, "
        "a tendon.Rendezvous, and nothing: then the environment says it");
  }
  const std::uint32_t self = rank_from(rank, "rank");
  const std::uint32_t members = rank_from(size, "size");
  if (!store.is_none()) return through(store, self, members);
  if (!PyUnicode_Check(address.ptr()))
    raise_type_error("address is a " + quoted_type(address) + "; legal is text: 'host:port'");
  return {Rendezvous::at(nb::cast<std::string>(address), GroupRank{self}, members)};
}

void bind_rendezvous(nb::module_& module) {
  nb::class_<RendezvousHandle>(module, "Rendezvous", kRendezvousDoc)
      .def_static(
          "from_environment", [] { return RendezvousHandle{Rendezvous::from_environment()}; },
          "The place that the launcher named. Rank and size: RANK and WORLD_SIZE (torchrun,\n"
          "`tendon launch`), else those of mpirun or srun. The address:\n"
          "TENDON_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT.")
      .def_static(
          "at",
          [](const std::string& address, nb::object rank, nb::object size) {
            return RendezvousHandle{Rendezvous::at(address, GroupRank{rank_from(rank, "rank")},
                                                   rank_from(size, "size"))};
          },
          nb::arg("address"), nb::arg("rank"), nb::arg("size"),
          "Rank 0 listens at 'host:port', the others connect to it.",
          nb::sig("def at(address: str, rank: int, size: int) -> Rendezvous"))
      .def_static(
          "through",
          [](nb::object store, nb::object rank, nb::object size) {
            return through(store, rank_from(rank, "rank"), rank_from(size, "size"));
          },
          nb::arg("store"), nb::arg("rank"), nb::arg("size"),
          "Rank 0 leaves its address in a store: a torch Store, or any object with\n"
          "set(key, value), get(key) and check([key]) or wait([key], timedelta).",
          nb::sig("def through(store: object, rank: int, size: int) -> Rendezvous"))
      .def_prop_ro("rank",
                   [](const RendezvousHandle& self) { return self.rendezvous.rank().value; })
      .def_prop_ro("size", [](const RendezvousHandle& self) { return self.rendezvous.size(); })
      .def_prop_ro(
          "address", [](const RendezvousHandle& self) { return self.rendezvous.address(); },
          "Empty with a store.")
      .def("__repr__", [](const RendezvousHandle& self) { return text_of(self.rendezvous); });
}

}  // namespace tendon::python
