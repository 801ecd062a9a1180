// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon {
inline namespace v0 {

/// The state of an asynchronous operation.
enum class CompletionStatus : std::uint8_t {
  pending,
  succeeded,      ///< its memory may be reused
  failed,         ///< failed or cancelled; its memory may be reused
  failed_owning,  ///< failed or cancelled, but the transport still touches the memory: keep it
  done [[deprecated("succeeded")]] = succeeded,  ///< Completion::done() is true of a failed one too
};

namespace detail {

/// The part of a completion that does not depend on its result.
class TENDON_API CompletionBase : public std::enable_shared_from_this<CompletionBase> {
 public:
  CompletionBase() noexcept;
  CompletionBase(const CompletionBase&) = delete;
  CompletionBase& operator=(const CompletionBase&) = delete;
  virtual ~CompletionBase() = default;
  /// True if this process was forked from the one that started the operation. None of the functions
  /// below is called here then.
  [[nodiscard]] bool forked() const noexcept;
  [[nodiscard]] static Error forked_error();
  [[nodiscard]] CompletionStatus status() const noexcept {
    return status_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool finished() const noexcept { return status() != CompletionStatus::pending; }

  /// Makes progress until finished or the deadline passes.
  virtual void drive(Deadline deadline) = 0;
  /// Best effort; an operation that cannot be stopped finishes by itself.
  virtual void cancel() = 0;
  /// As cancel(), because its time is over. A collective ends as `timeout` and names the members
  /// that it waits for.
  virtual void expire() { cancel(); }
  /// Called when the user drops the completion without taking the result.
  virtual void abandon() = 0;
  /// As cancel() and abandon(); also puts back a message received into the user's memory.
  virtual void give_back() {
    cancel();
    abandon();
  }

 protected:
  std::atomic<CompletionStatus> status_{CompletionStatus::pending};

 private:
  const std::uint32_t process_;
};

template <class T>
class CompletionState : public CompletionBase {
 public:
  using Callback = std::function<void(Result<T>)>;

  /// Called once by the part that runs the operation. If the user registered a callback, returns it
  /// bound to the result, for a thread that holds no lock.
  [[nodiscard]] std::function<void()> finish(
      Result<T> result, CompletionStatus failed_as = CompletionStatus::failed) {
    Lock lock(mutex_);
    const bool is_success = result.has_value();
    const auto status = is_success ? CompletionStatus::succeeded : failed_as;
    if (abandoned_) {
      taken_ = true;
      status_.store(status, std::memory_order_release);
      lock.unlock();
      left_over(std::move(result));
      return {};
    }
    result_.emplace(std::move(result));
    status_.store(status, std::memory_order_release);
    return callback_ ? bind_callback() : std::function<void()>();
  }

  [[nodiscard]] Result<T> take() {
    const Lock lock(mutex_);
    if (taken_) {
      return Error{ErrorCode::already_taken, "completion.wait",
                   "this completion's result was taken by an earlier wait or by its callback"};
    }
    taken_ = true;
    Result<T> result = std::move(*result_);
    result_.reset();
    return result;
  }

  /// Registers the callback, or returns it ready to run if the operation is finished.
  [[nodiscard]] std::function<void()> set_callback(Callback callback) {
    const Lock lock(mutex_);
    callback_ = std::move(callback);
    return finished() && !taken_ ? bind_callback() : std::function<void()>();
  }

  /// Hands `run` to the thread that runs callbacks.
  virtual void schedule(std::function<void()> run) = 0;

 protected:
  /// For abandon(): hands a result that no caller will take to left_over(), now or when it arrives.
  void hand_back() {
    Lock lock(mutex_);
    if (taken_ || callback_) return;
    if (!result_) {
      abandoned_ = true;
      return;
    }
    taken_ = true;
    Result<T> result = std::move(*result_);
    result_.reset();
    lock.unlock();
    left_over(std::move(result));
  }
  /// Handles a result whose Completion was dropped.
  virtual void left_over(Result<T>) TENDON_EXCLUDES(mutex_) {}

 private:
  std::function<void()> bind_callback() TENDON_REQUIRES(mutex_) {
    taken_ = true;
    auto shared = std::make_shared<Result<T>>(std::move(*result_));
    result_.reset();
    return [callback = std::exchange(callback_, {}), shared] { callback(std::move(*shared)); };
  }

  Mutex mutex_;
  std::optional<Result<T>> result_ TENDON_GUARDED_BY(mutex_);
  Callback callback_ TENDON_GUARDED_BY(mutex_);
  bool taken_ TENDON_GUARDED_BY(mutex_) = false;
  bool abandoned_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace detail

/// True for the error that wait() of a Completion returns before the operation has ended.
[[nodiscard]] inline bool is_pending(const Error& error) noexcept {
  return error.code == ErrorCode::timeout && error.where == "completion.wait";
}

/// The outcome of an `_async` call, now or later.
///
/// Example:
///   Completion<TensorDict> next = pipe.recv_async();
///   Completion<void> sent = pipe.send_async(batch);
///   Result<TensorDict> received = next.wait(10s);
///   if (!received && is_pending(received.error())) next.cancel();  // else it continues
///   sent.on_done([](Result<void> result) {
///     if (!result) std::cerr << result.error().message() << '\n';
///   });
///
/// Owns:    a share of the operation, which keeps every tensor it touches until the transport is
///          quiet.
/// Threads: one thread at a time.
/// Errors:  those of the operation; `timeout` from wait() leaves it pending; already_taken the
///          second time. In a forked child wait() returns `forked`, and the rest does nothing.
/// Blocks:  wait() and done_by(), until their deadline.
/// Cost:    some allocations an operation; a send keeps a copy of the dict, which shares tensors.
///
/// Dropping a Completion: a send continues. A receive without a message yet is cancelled; one that
/// has a message puts it back at the head of its pipe. A message that was received into the
/// caller's memory stays there, unless give_back() drops the completion.
template <class T>
class [[nodiscard]] Completion {
 public:
  /// For the parts that make completions.
  explicit Completion(std::shared_ptr<detail::CompletionState<T>> state)
      : state_(std::move(state)) {}
  Completion(Completion&&) noexcept = default;
  Completion& operator=(Completion&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion() { drop(); }

  [[nodiscard]] CompletionStatus state() const noexcept { return state_->status(); }
  /// True when it has ended, in success or failure.
  [[nodiscard]] bool done() const noexcept { return state_->finished(); }

  /// Waits, and leaves the result for wait(): true when it is done.
  [[nodiscard]] bool done_by(Deadline deadline) {
    if (!state_->finished()) state_->drive(deadline);
    return done();
  }
  /// Waits and takes the result. After `timeout` the caller may wait again.
  [[nodiscard]] Result<T> wait(Deadline deadline) {
    if (state_->forked()) return detail::CompletionBase::forked_error();
    if (!done_by(deadline)) {
      return Error{ErrorCode::timeout, "completion.wait",
                   "the operation is still pending; it goes on, wait again or cancel()"};
    }
    return state_->take();
  }

  /// Best effort: an operation that was stopped fails with `cancelled`.
  void cancel() {
    if (!state_->forked()) state_->cancel();
  }
  /// As cancel(), for a caller whose deadline for the whole operation has passed. A collective ends
  /// as `timeout` on all members, and names those that it waits for.
  void expire() {
    if (!state_->forked()) state_->expire();
  }

  /// Drops it as if it had never been started. A message that has arrived is at the head of its
  /// stream again, as a copy if it lies in the caller's memory already.
  void give_back() && {
    if (const auto state = take_state()) state->give_back();
  }

  /// Hands the result to `callback`, on the service thread or inside Context::progress(); at the
  /// end inside Context::close() or the destructor. Never inside another call, never under a lock.
  void on_done(std::function<void(Result<T>)> callback) {
    if (state_->forked()) return;
    if (auto run = state_->set_callback(std::move(callback))) state_->schedule(std::move(run));
  }

 private:
  using State = std::shared_ptr<detail::CompletionState<T>>;
  void drop() {
    if (const auto state = take_state()) state->abandon();
  }
  /// Null in a forked child: the operation belongs to its parent, and is not even destroyed here.
  [[nodiscard]] State take_state() {
    if (state_ != nullptr && state_->forked()) (void)new (std::nothrow) State(std::move(state_));
    return std::exchange(state_, nullptr);
  }
  State state_;
};

}  // namespace v0
}  // namespace tendon
