// SPDX-License-Identifier: Apache-2.0
// What the engine calls: work without a caller, timers, listeners, the attempts of waiting threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// Messages that still wait to go to a peer.
struct Unsent {
  std::string peer;  ///< empty: nothing waits
  std::uint64_t message_count = 0;
};

/// Something that goes on without a caller waiting for it: queued sends, collectives. Called by
/// whoever makes progress.
class Work {
 public:
  virtual ~Work() = default;
  /// Does what can be done now. True: call again after something moved. False: finished, forget it.
  virtual bool progress() = 0;
  [[nodiscard]] virtual Unsent unsent() const { return {}; }
  /// A glance without a lock: would progress() find something that no descriptor tells of? Looked
  /// at by whoever goes to sleep, after he announced it.
  [[nodiscard]] virtual bool has_input() const noexcept { return false; }
};

/// Something with a point in time: a handshake that must end.
class Timed {
 public:
  virtual ~Timed() = default;
  /// Called when its time has come.
  virtual void on_time() = 0;
};

/// Takes the pipes that peers open with a ticket. Implemented above the runtime, which knows no
/// pipes.
class OpenHandler {
 public:
  virtual ~OpenHandler() = default;
  /// May a further peer come in? Asked before its handshake is answered.
  virtual Result<void> may_open() = 0;
  /// A sink for the new pipe, or why not. The link's receive lock is held.
  virtual Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link,
                                                       std::uint32_t pipe) = 0;
  /// The peer is lost: what it opened and nobody accepted goes. The link's receive lock is held.
  virtual void on_link_lost(const Link&) {}
  /// The Context was closed.
  virtual void on_context_closed() = 0;
};

/// A descriptor in the epoll of an engine.
struct Watched {
  int fd;
  std::weak_ptr<FdHandler> handler;
};

/// What an engine has to call, and when.
struct TimedEntry {
  Deadline when;
  std::weak_ptr<Timed> timed;
};

/// Counts what attempts have done while somebody waited; null: not counted. The time that work took
/// was no waiting, and after it what comes next may come soon: so the spinning begins anew.
using Moves = const std::atomic<std::uint64_t>*;

/// A call without ownership of what it calls; cheaper than std::function and never allocating.
class Attempt {
 public:
  template <class F>
  Attempt(F& f)  // NOLINT(google-explicit-constructor): lambdas convert
      : object_(&f), call_([](void* object) { return (*static_cast<F*>(object))(); }) {}
  bool operator()() const { return call_(object_); }

 private:
  void* object_;
  bool (*call_)(void*);
};

}  // namespace tendon::v0::detail
