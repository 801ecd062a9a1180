// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/thread.hpp"
#include "cuda/awaited_answer.hpp"
#include "cuda/driver.hpp"
#include "cuda/event_watch.hpp"

namespace tendon::v0::detail::cuda {

/// The thread that makes the calls of the driver that may take long or wait for the GPU: create,
/// export, import, map, register, release. It also polls events, so that no caller has to. A
/// process has one, from its first use on.
///
/// Owns:    the thread; jobs until they are done.
/// Threads: thread-safe.
/// Errors:  `forked` in a child of a process that used the driver; resource_exhausted if no thread
///          can start; context_closed while it ends, except for jobs that it posts itself. run()
///          has those of Driver::initialise() too.
/// Blocks:  run(), until its deadline, or for the job if this is the device thread; the destructor,
///          for the remaining jobs.
/// Cost:    a wake-up of the thread for each job.
class TENDON_API DeviceThread {
 public:
  using Job = std::function<void()>;

  explicit DeviceThread(Driver& driver);
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;
  /// Does the remaining jobs; events that the GPU has not reached are not reported.
  ~DeviceThread();

  /// Adds a job. Jobs are done one after the other, in this order, and a job that waits for the GPU
  /// delays all others. A job is done even if the driver cannot be initialised.
  [[nodiscard]] Result<void> post(Job job);

  /// Does `job`, which returns a Result, once the driver is initialised, and waits for its answer.
  /// After a timeout the job does not begin any more, or its answer is dropped in the device
  /// thread: the objects in it release themselves.
  template <class F>
  [[nodiscard]] std::invoke_result_t<F&> run(F job, Deadline deadline) {
    if (is_current()) return job();
    auto awaited = std::make_shared<AwaitedAnswer<std::invoke_result_t<F&>>>();
    TENDON_CHECK(post([this, awaited, job = std::move(job)]() mutable {
      if (!awaited->is_wanted()) return;
      auto ready = driver_.initialise();
      if (ready)
        awaited->deliver(job());
      else
        awaited->deliver(std::move(ready).error());
    }));
    return awaited->wait(deadline, "cuda.thread",
                         "the device thread, which creates, maps and releases memory of GPUs one "
                         "after the other, was not done with it before the deadline");
  }

  /// Reports an event when the GPU has reached it, in the device thread.
  [[nodiscard]] Result<void> watch(WatchedEvent event);

 private:
  [[nodiscard]] bool is_current() const noexcept;
  [[nodiscard]] Result<void> make_sure_it_runs() TENDON_REQUIRES(mutex_);
  void serve();
  /// The next job, or an empty one.
  [[nodiscard]] Job take_job() TENDON_REQUIRES(mutex_);

  Driver& driver_;
  const std::uint32_t process_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ TENDON_GUARDED_BY(mutex_);
  std::vector<WatchedEvent> new_events_ TENDON_GUARDED_BY(mutex_);
  bool is_ending_ TENDON_GUARDED_BY(mutex_) = false;
  Thread thread_ TENDON_GUARDED_BY(mutex_);
};

/// The device thread of this process, for the driver that the environment chooses.
[[nodiscard]] TENDON_API Result<DeviceThread*> process_device_thread();

}  // namespace tendon::v0::detail::cuda
