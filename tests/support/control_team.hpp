// SPDX-License-Identifier: Apache-2.0
// A controller and its workers as threads of a test, each with its own Context.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <tendon/control/controller.hpp>
#include <tendon/control/worker.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "support/expect.hpp"
#include "support/storage_of.hpp"

namespace tendon::test {

inline std::string text_of(const Storage& storage) { return std::string(as_text(storage.bytes())); }

inline ParallelLayout layout_of(std::uint32_t tensor, std::uint32_t pipeline, std::uint32_t kv) {
  return ParallelLayout::make({.tensor = tensor, .pipeline = pipeline, .kv = kv}).value();
}

/// Returns a step as "rank R: PAYLOAD".
inline Result<void> echo(Worker& worker, const StepInputs& step) {
  TENDON_CHECK(worker.signal_microbatch(step.schedule_id, kPatience));
  return worker.send_outputs({.schedule_id = step.schedule_id,
                              .payload = storage_of("rank " + std::to_string(worker.rank().value) +
                                                    ": " + text_of(step.payload))},
                             kPatience);
}

/// Echoes steps until the controller stops; enters each new roster.
inline void echo_steps(Worker& worker) {
  while (true) {
    const Result<Step> step = worker.next_step(kPatience);
    const Result<void> done = step.has_value() ? echo(worker, step->inputs) : step.error();
    if (done.has_value()) continue;
    if (done.error().code == ErrorCode::end_of_stream) return;
    // The roster may be closed during a step.
    if (done.error().code != ErrorCode::roster_closed) {
      ADD_FAILURE() << done.error().message();
      return;
    }
    if (const auto entered = worker.rebuild(done.error(), kPatience); !entered.has_value()) {
      // The controller may stop while a roster is formed.
      if (entered.error().code != ErrorCode::end_of_stream)
        ADD_FAILURE() << entered.error().message();
      return;
    }
  }
}

/// Workers in threads.
class WorkerThreads {
 public:
  using Body = std::function<void(Worker&)>;
  using BodyWithContext = std::function<void(Worker&, Context&)>;

  explicit WorkerThreads(const Controller& controller)
      : address_(controller.address()), layout_(controller.layout()) {}
  ~WorkerThreads() { join(); }

  void start(std::uint32_t rank, Body body = echo_steps, WorkerOptions options = {}) {
    start_in(
        rank, [body = std::move(body)](Worker& worker, Context&) { body(worker); },
        std::move(options));
  }
  void start_in(std::uint32_t rank, BodyWithContext body, WorkerOptions options = {}) {
    threads_.emplace_back([this, rank, body = std::move(body), options] {
      Context context = Context::create({.name = "worker " + std::to_string(rank)}).value();
      auto worker = Worker::connect(context, address_, layout_, {rank}, kPatience, options);
      ASSERT_TRUE(succeeds(worker));
      body(*worker, context);
    });
  }
  void start_all(const Body& body = echo_steps) {
    for (std::uint32_t rank = 0; rank < layout_.world_size(); ++rank) start(rank, body);
  }
  void join() {
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
  }

 private:
  std::string address_;
  ParallelLayout layout_;
  std::vector<std::thread> threads_;
};

}  // namespace tendon::test
