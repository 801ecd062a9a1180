// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh/zenoh_callbacks.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <tendon/core/deadline.hpp>
#include <utility>

#include "core/process_wide.hpp"

namespace tendon::v0::detail {

namespace {

/// How long the exit of the process waits for callbacks that run.
constexpr std::chrono::seconds kExitPatience{1};

/// At the exit of the process, the program's objects are destroyed before Zenoh's threads end. From
/// then on no callback begins, and those that run return first.
class ExitGate {
 public:
  /// Callbacks of a parent do not run in a forked child, whose gate is its own.
  static ExitGate& get() { return gate_.get(); }
  /// Shuts the gate at the exit of the process, from now on.
  static void serve() {
    if (!serves_.exchange(true)) std::atexit([] { get().shut(); });  // a child inherits it
  }

  [[nodiscard]] bool is_shut() const { return shut_; }
  /// False: the callback may not begin.
  [[nodiscard]] bool enter() TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    if (shut_) return false;
    ++running_;
    inside_ = true;
    return true;
  }
  void leave() TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    --running_;
    inside_ = false;
    left_.notify_all();
  }

 private:
  void shut() TENDON_EXCLUDES(mutex_) {
    const Deadline deadline = kExitPatience;
    const Lock lock(mutex_);
    shut_ = true;
    const int own = inside_ ? 1 : 0;  // a callback that called exit()
    while (running_ > own && left_.wait_until(mutex_, deadline)) {
    }
  }

  static constinit PerProcess<ExitGate> gate_;
  static constinit std::atomic<bool> serves_;
  static thread_local bool inside_;
  Mutex mutex_;
  CondVar left_;
  int running_ TENDON_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> shut_ = false;
};

constinit PerProcess<ExitGate> ExitGate::gate_;
constinit std::atomic<bool> ExitGate::serves_{false};
thread_local bool ExitGate::inside_ = false;

}  // namespace

Result<std::shared_ptr<ZenohCallbacks>> ZenohCallbacks::start() {
  ExitGate::serve();  // objects that are older than a session outlive its callbacks
  std::shared_ptr<ZenohCallbacks> callbacks(new ZenohCallbacks());
  // The thread keeps it: a callback may close its own session.
  TENDON_TRY(thread, Thread::start({.name = "tendon-zenoh",
                                    .where = "fabric.zenoh",
                                    .task = "that tells what Zenoh says"},
                                   [callbacks] { callbacks->run(); }));
  callbacks->thread_ = std::move(thread);
  return callbacks;
}

ZenohCallbacks::Number ZenohCallbacks::add(Callback callback) {
  return add(Recipient{.callback = std::make_shared<Callback>(std::move(callback))});
}

ZenohCallbacks::Number ZenohCallbacks::add_subscriber(ZenohPort::OnMessage on_message,
                                                      ZenohPort::OnDropped on_dropped) {
  return add(
      [on_message = std::move(on_message), on_dropped = std::move(on_dropped)](const Event& event) {
        if (const auto* const message = std::get_if<ZenohMessage>(&event))
          return on_message(*message);
        for (const auto& [key, count] : std::get<Missed>(event).messages) on_dropped(key, count);
      });
}

ZenohCallbacks::Number ZenohCallbacks::add_listener(Callback callback) {
  return add(
      Recipient{.callback = std::make_shared<Callback>(std::move(callback)), .listens = true});
}

ZenohCallbacks::Number ZenohCallbacks::add(Recipient recipient) {
  const Lock lock(mutex_);
  recipients_.emplace(++last_number_, std::move(recipient));
  return last_number_;
}

void ZenohCallbacks::remove(Number number) {
  Recipient gone;  // dropped without the lock
  Lock lock(mutex_);
  const auto found = recipients_.find(number);
  if (found != recipients_.end()) {
    gone = std::move(found->second);
    recipients_.erase(found);
  }
  if (in_callback()) return;
  while (running_ == number && number != 0) returned_.wait(mutex_);
}

void ZenohCallbacks::close() {
  std::map<Number, Recipient> gone;
  ZenohEventQueue not_told;
  {
    const Lock lock(mutex_);
    closed_ = true;
    gone.swap(recipients_);
    std::swap(not_told, queue_);
    queued_.notify_one();
  }
  thread_.join();
}

void ZenohCallbacks::post(Number number, Event event) noexcept {
  if (ExitGate::get().is_shut()) return;
  const Lock lock(mutex_);
  const auto recipient = recipients_.find(number);
  if (closed_ || recipient == recipients_.end()) return;
  if (!queue_.has_room_for(event)) return miss(number, recipient->second, event);
  if (recipient->second.missed && std::holds_alternative<Ending>(event)) {
    event = Ending::timed_out;
  }
  push(number, std::move(event));
}

void ZenohCallbacks::push(Number number, Event event) {
  queue_.push(number, std::move(event));
  queued_.notify_one();
}

void ZenohCallbacks::post_missed(Number number, const std::string& key, std::uint64_t count) {
  const Lock lock(mutex_);
  const auto recipient = recipients_.find(number);
  if (closed_ || recipient == recipients_.end()) return;
  untold_of(number, recipient->second).add(key, count);
}

void ZenohCallbacks::miss(Number number, Recipient& recipient, const Event& event) {
  ++dropped_;
  recipient.missed = true;
  Missed& untold = untold_of(number, recipient);
  if (const auto* const message = std::get_if<ZenohMessage>(&event)) untold.add(message->key, 1);
}

ZenohCallbacks::Missed& ZenohCallbacks::untold_of(Number number, Recipient& recipient) {
  if (!recipient.untold) {
    recipient.untold.emplace();
    push(number, Missed{});
  }
  return *recipient.untold;
}

void ZenohCallbacks::set_state(SessionState state) noexcept {
  if (ExitGate::get().is_shut()) return;
  const Lock lock(mutex_);
  if (closed_ || std::exchange(state_, state) == state) return;
  for (const auto& [number, recipient] : recipients_) {
    if (recipient.listens) queue_.push(number, state);
  }
  queued_.notify_one();
}

SessionState ZenohCallbacks::state() const {
  const Lock lock(mutex_);
  return state_;
}

std::uint64_t ZenohCallbacks::dropped() const {
  const Lock lock(mutex_);
  return dropped_;
}

void ZenohCallbacks::run() {
  for (;;) {
    Call call = begin_call();
    if (call.what == nullptr) return;
    if (call.callback == nullptr) continue;
    if (ExitGate::get().enter()) {
      (*call.callback)(std::move(call.what->event));
      ExitGate::get().leave();
    }
    call = {};  // nothing of a callback is left when its remove() returns
    end_call();
  }
}

ZenohCallbacks::Call ZenohCallbacks::begin_call() {
  Lock lock(mutex_);
  while (queue_.empty() && !closed_) queued_.wait(mutex_);
  if (closed_) return {};
  std::unique_ptr<Queued> next = queue_.pop();
  const auto recipient = recipients_.find(next->recipient);
  // A question without a recipient is returned without the lock: that may call post().
  if (recipient == recipients_.end()) return {nullptr, std::move(next)};
  if (auto* const missed = std::get_if<Missed>(&next->event))
    *missed = *std::exchange(recipient->second.untold, std::nullopt);
  running_ = next->recipient;
  return {recipient->second.callback, std::move(next)};
}

void ZenohCallbacks::end_call() {
  const Lock lock(mutex_);
  running_ = 0;
  returned_.notify_all();
}

}  // namespace tendon::v0::detail
