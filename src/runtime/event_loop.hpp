// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <unordered_map>

#include "core/fd.hpp"
#include "runtime/turn_queue.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The single epoll of a Context: descriptors with their handlers, and a doorbell that peers and
/// other threads ring.
///
/// One dispatch() is a turn. Handlers that were watched in turns are called after all others, for
/// TurnQueue::kMostTime. The rest are called first in the next turn, which begins at once.
///
/// Owns:    the epoll and the doorbell, but no descriptor that it watches.
/// Threads: thread-safe. Handlers are called without its lock, by several threads at a time.
/// Errors:  open(), watch(): too_many_open_files, system.
/// Blocks:  dispatch() for its timeout.
/// Cost:    a hash table entry for each descriptor.
class EventLoop final : public Reactor {
 public:
  struct Events {
    bool any = false;
    bool rung = false;  ///< the doorbell was among them; it has been silenced again
  };

  /// The clock for turns.
  using Now = TurnQueue::Time (*)();
  explicit EventLoop(Now now = &std::chrono::steady_clock::now) : now_(now) {}

  [[nodiscard]] Result<void> open();
  /// Waits for events and calls the handlers of those that arrived; -1 ms is no limit.
  Events dispatch(int timeout_ms);
  /// Wakes one thread in dispatch(), or the next one to call it.
  void ring() const noexcept;
  /// Readable when there are events.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  [[nodiscard]] int doorbell_fd() const noexcept { return doorbell_.get(); }

  Result<void> watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) override;
  void change(int fd, std::uint32_t events) override;
  void forget(int fd) override;
  /// Like watch(), for a slow handler: it is called in its turn, by one thread at a time, and does
  /// not learn which events there were.
  [[nodiscard]] Result<void> watch_in_turns(int fd, std::uint32_t events,
                                            std::weak_ptr<FdHandler> handler);
  /// Calls the handler of `fd` in its turn, with or without an event.
  void call_in_turn(int fd);

 private:
  enum class Manner : std::uint8_t { at_once, in_turns };
  struct Watched {
    int fd;
    std::uint32_t events;
    Manner manner;
    std::weak_ptr<FdHandler> handler;
  };
  Result<void> watch(Watched watched) TENDON_EXCLUDES(mutex_);
  /// Calls the handler, if it still exists.
  void serve(std::uint64_t id, std::uint32_t events) TENDON_EXCLUDES(mutex_);
  /// Listens to the descriptor again; it is silent from its event to the end of its turn.
  void rearm(std::uint64_t id) TENDON_EXCLUDES(mutex_);

  const Now now_;
  OwnedFd epoll_;
  OwnedFd doorbell_;
  TurnQueue turns_;
  Mutex mutex_;
  // By an id that is never reused, because an event in flight may outlive its descriptor.
  std::unordered_map<std::uint64_t, Watched> watched_ TENDON_GUARDED_BY(mutex_);
  std::unordered_map<int, std::uint64_t> id_of_fd_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t next_id_ TENDON_GUARDED_BY(mutex_) = 1;  // 0 is the doorbell
};

}  // namespace tendon::v0::detail
