// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "completer.hpp"
#include "lent.hpp"
#include "table.hpp"

namespace tendon::torch_extension {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using torch_table::Table;

inline std::int64_t nanoseconds_until(Clock::time_point when) {
  if (when == Clock::time_point::max()) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::nanoseconds>(when - Clock::now()).count());
}

/// The Tendon group of one process group, while it is open.
class OpenGroup {
 public:
  OpenGroup(const Table& table, torch_table::Group* group) : table(table), group(group) {}
  OpenGroup(const OpenGroup&) = delete;
  OpenGroup& operator=(const OpenGroup&) = delete;
  ~OpenGroup() { table.close(group); }
  const Table& table;
  torch_table::Group* const group;
};

/// Operations that were started together, with the tensors that they change.
///
/// Any thread may wait. The Completer completes its future. A failure is an error of the future,
/// because torch's C++ takes a value for tensors.
class Work final : public c10d::Work {
 public:
  using Outputs = std::vector<std::vector<at::Tensor>>;

  Work(const std::shared_ptr<OpenGroup>& group, const char* title, c10d::OpType type,
       const std::vector<at::Tensor>& inputs, Outputs outputs, std::uint64_t sequence,
       milliseconds timeout)
      : c10d::Work(-1, type, title, inputs),
        table_(group->table),
        group_(group),
        title_(title),
        outputs_(std::move(outputs)),
        sequence_(sequence),
        timeout_(timeout),
        end_(timeout.count() >= kMostMilliseconds ? Clock::time_point::max()
                                                  : Clock::now() + timeout) {}

  ~Work() override {
    for (torch_table::Operation* const operation : operations_) table().drop(operation);
    release_left_over();
  }

  /// Precondition: no other thread knows this Work yet.
  void add(torch_table::Operation* operation) { operations_.push_back(operation); }
  /// Call after the last add(). Its event in the profiler ends with the operations, even if nothing
  /// waits for them.
  void begun() {
    if (recordFunctionEndCallback_ && !operations_.empty()) subscribe();
  }

  /// True if its operations have ended.
  [[nodiscard]] bool over() const {
    for (const torch_table::Operation* const operation : operations_)
      if (!table().is_done(operation)) return false;
    return true;
  }

  [[nodiscard]] bool is_receive() const {
    return opType_ == c10d::OpType::RECV || opType_ == c10d::OpType::RECVANYSOURCE;
  }

  bool isCompleted() override {
    if (!over()) {
      if (Clock::now() < end_) return false;
      // A caller that only asks must also see the timeout.
      for (torch_table::Operation* const operation : operations_) table().expire(operation);
      if (!over()) return false;
    }
    collect();
    return true;
  }
  [[nodiscard]] bool isSuccess() const override {
    const std::lock_guard lock(mutex_);
    return completed_ && exception_ == nullptr;
  }
  [[nodiscard]] std::exception_ptr exception() const override {
    const std::lock_guard lock(mutex_);
    return exception_;
  }
  [[nodiscard]] int sourceRank() const override {
    TENDON_REFUSE_IF(!is_receive(), "only a recv has a source rank, and this is ", title_);
    const std::lock_guard lock(mutex_);
    TENDON_REFUSE_IF(!completed_, "the source rank is known when the recv is over; wait() first");
    return source_;
  }
  std::vector<at::Tensor> result() override {
    TENDON_REFUSE_IF(outputs_.size() > 1,
                     "work with several lists of tensors has no one result; "
                     "get_future().value() has them");
    return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
  }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { abort_group("abort() of one of its works was called"); }
  [[nodiscard]] std::uint64_t getSequencenumber() const override { return sequence_; }
  [[nodiscard]] milliseconds getTimeout() const override { return timeout_; }

  bool wait(milliseconds timeout) override {
    Completer::about_to_wait();
    const auto given_up = timeout == kNoTimeout ? Clock::time_point::max() : Clock::now() + timeout;
    for (torch_table::Operation* const operation : operations_) {
      if (!wait_for(operation, given_up)) {
        TENDON_REFUSE_IF(true, title_, " is not over after the ", timeout.count(),
                         " ms of wait(); it goes on, wait again");
      }
    }
    collect();
    release_left_over();
    const std::exception_ptr failed = exception();
    if (failed) std::rethrow_exception(failed);
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    bool is_over = false;
    {
      const std::lock_guard lock(future_mutex_);
      if (future_ != nullptr) return future_;
      const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
      future_ = c10::make_intrusive<c10::ivalue::Future>(
          outputs_.size() > 1 ? c10::TypePtr(c10::ListType::create(tensors)) : tensors);
      // Also without operations, which would otherwise never report an end.
      if (over()) collect_once();
      is_over = is_collected_;
      if (!is_over) subscribe_once();
    }
    if (is_over)
      complete();
    else
      Completer::about_to_wait();
    return future_;
  }

 private:
  // A longer timeout would overflow the clock.
  static constexpr std::int64_t kMostMilliseconds = std::int64_t{1} << 40;
  static constexpr std::int64_t kSlice = 50'000'000;

  [[nodiscard]] const Table& table() const { return table_; }

  /// False if the caller stops waiting.
  bool wait_for(torch_table::Operation* operation, Clock::time_point given_up) {
    if (table().wait(operation, first_slice(given_up))) return true;
    while (true) {
      look_at_signals();
      const auto now = Clock::now();
      if (now >= end_) {
        table().expire(operation);
        // The result names the missing members, and the tensors are the caller's again.
        if (table().wait(operation, 20 * kSlice)) return true;
        fail("not over before its timeout, and taken back");
        return true;
      }
      if (now >= given_up) return false;
      if (table().wait(operation, std::min(kSlice, nanoseconds_until(std::min(end_, given_up)))))
        return true;
    }
  }

  [[nodiscard]] std::int64_t first_slice(Clock::time_point given_up) const {
    if (given_up == Clock::time_point::max() && timeout_.count() > 50) return kSlice;
    return std::min(kSlice, nanoseconds_until(std::min(end_, given_up)));
  }

  /// Ctrl-C ends the operations for all members: they cannot be restarted.
  void look_at_signals() const {
    if (Py_IsInitialized() == 0 || PyGILState_GetThisThreadState() == nullptr) return;
    const pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return;
    const pybind11::error_already_set raised;
    {
      const pybind11::gil_scoped_release unlocked;
      abort_group(std::string("a signal ended its ") + title_);
    }
    throw raised;
  }

  void abort_group(const std::string& reason) const {
    if (const auto group = group_.lock()) table_.abort(group->group, reason.c_str());
  }

  void fail(const std::string& text) {
    {
      const std::lock_guard lock(future_mutex_);
      if (!std::exchange(is_collected_, true))
        finish(std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, text)));
    }
    complete();
  }

  /// Takes the outcomes, once.
  void collect() {
    const std::lock_guard lock(future_mutex_);
    collect_once();
  }
  void collect_once() {
    if (is_collected_) return;
    is_collected_ = true;
    std::exception_ptr failed;
    for (torch_table::Operation* const operation : operations_) {
      const torch_table::Outcome outcome = table().outcome(operation);
      source_ = static_cast<int>(outcome.rank);
      if (outcome.error != nullptr && !failed)
        failed = std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, text_of(outcome.error)));
    }
    finish(failed);
  }

  /// torch can set a timeout in many places, and defaults to 30 minutes: the text states the one
  /// used.
  [[nodiscard]] std::string text_of(std::string error) const {
    const bool is_of_another = error.find(" ended it: ") != std::string::npos;
    if (error.rfind("TD-E0003", 0) != 0 || is_of_another) return error;
    std::ostringstream text;
    text << error << "\n note: its timeout was " << double(timeout_.count()) / 1e3
         << " s (timeout= of init_process_group and new_group, or set_timeout)";
    return text.str();
  }

  void subscribe() {
    const std::lock_guard lock(future_mutex_);
    subscribe_once();
  }
  void subscribe_once() {
    if (std::exchange(is_subscribed_, true)) return;
    open_ = operations_.size();
    const std::int64_t most = nanoseconds_until(end_);
    for (torch_table::Operation* const operation : operations_) {
      c10::raw::intrusive_ptr::incref(this);
      table().notify(
          operation, most, [](void* with) { static_cast<Work*>(with)->one_is_over(); }, this);
    }
  }

  /// Called on the pump thread.
  void one_is_over() noexcept {
    const auto self = c10::intrusive_ptr<Work>::reclaim(this);
    {
      const std::lock_guard lock(future_mutex_);
      if (--open_ != 0) return;
      collect_once();
      if (future_ == nullptr) return;  // a later request finds that it has ended
    }
    Completer::get().add([self] { self->complete(); });
  }

  /// Completes the future, once, if there is one. Its callbacks run without a lock.
  void complete() {
    {
      const std::lock_guard lock(future_mutex_);
      if (future_ == nullptr || std::exchange(is_completed_, true)) return;
    }
    try {
      if (const std::exception_ptr failed = exception())
        future_->setError(failed);
      else if (outputs_.empty())
        future_->markCompleted(c10::IValue(std::vector<at::Tensor>()));
      else if (outputs_.size() > 1)
        future_->markCompleted(c10::IValue(outputs_));
      else
        future_->markCompleted(c10::IValue(outputs_.front()));
    } catch (const std::exception& error) {
      TORCH_WARN("a callback of a future of ", title_, " failed: ", error.what());
    }
  }

  const Table& table_;
  // Weak, so that a program's Works do not keep its process group alive.
  const std::weak_ptr<OpenGroup> group_;
  const char* const title_;
  Outputs outputs_;
  const std::uint64_t sequence_;
  const milliseconds timeout_;
  const Clock::time_point end_;
  std::vector<torch_table::Operation*> operations_;
  std::mutex future_mutex_;
  // Guarded by mutex_.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::size_t open_ = 0;
  bool is_subscribed_ = false;
  bool is_collected_ = false;
  bool is_completed_ = false;
  int source_ = -1;
};

}  // namespace tendon::torch_extension
