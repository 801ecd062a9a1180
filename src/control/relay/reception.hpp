// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/completion.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/listener.hpp>
#include <utility>

#include "control/relay/worker_pipe.hpp"

namespace tendon::v0::detail {

/// The place where workers connect: a listener, its next accept, and the pipes of silent peers.
///
/// Owns:    these; at most kMaxUnseatedWorkers of the pipes, a newcomer replaces the oldest.
/// Threads: safe everywhere. Its lock may be taken under that of its owner.
/// Errors:  none: a replaced peer is told why.
/// Blocks:  never.
/// Cost:    a look at the silent ones.
class Reception {
 public:
  /// `full` is the error for a replaced peer.
  explicit Reception(Error full) : full_(std::move(full)) {}

  /// Accepts peers from now on. `owner` handles their pipes, and has this as a part.
  void open(Listener listener, std::weak_ptr<PipeListener> owner);
  [[nodiscard]] std::string address() const { return listener_->address(); }
  /// Removes a pipe whose peer has spoken, or that has ended. False: it was removed before.
  bool leave(const std::shared_ptr<WorkerPipe>& pipe) TENDON_EXCLUDES(mutex_);
  /// Admits nobody else.
  void close() TENDON_EXCLUDES(mutex_);
  /// Takes the pipes of silent peers.
  [[nodiscard]] std::deque<std::shared_ptr<WorkerPipe>> take_silent() TENDON_EXCLUDES(mutex_);

 private:
  void accept_next() TENDON_EXCLUDES(mutex_);
  void accepted(Result<Pipe> pipe) TENDON_EXCLUDES(mutex_);

  const Error full_;
  std::optional<Listener> listener_;   // set before the first accept
  std::weak_ptr<PipeListener> owner_;  // likewise
  Mutex mutex_;
  std::optional<Completion<Pipe>> accepting_ TENDON_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<WorkerPipe>> silent_ TENDON_GUARDED_BY(mutex_);
  bool is_closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
