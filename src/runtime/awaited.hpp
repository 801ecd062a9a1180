// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <tendon/core/completion.hpp>
#include <utility>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The completion of an operation that a Context continues: its callback runs where the Context
/// runs callbacks, and a program that sleeps on the Context's descriptor is woken.
///
/// Owns:    nothing; the derived class shares the owner of the Context.
/// Threads: thread-safe.
/// Errors:  none of its own.
/// Blocks:  never.
/// Cost:    that of the callback, and of the signal.
template <class T>
class Awaited : public CompletionState<T> {
 public:
  explicit Awaited(ContextCore& context) : context_(context) {}

  void schedule(std::function<void()> run) override { context_.schedule(std::move(run)); }
  /// Ends the operation with `result` and reports it; call it once.
  void conclude(Result<T> result, CompletionStatus failed_as = CompletionStatus::failed) {
    if (auto run = this->finish(std::move(result), failed_as)) schedule(std::move(run));
    context_.note_completed();
  }

 private:
  ContextCore& context_;
};

}  // namespace tendon::v0::detail
