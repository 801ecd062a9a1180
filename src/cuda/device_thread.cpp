// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_thread.hpp"

#include <sys/prctl.h>

#include "core/fork_guard.hpp"
#include "core/process_wide.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr ThreadRole kRole{"tendon-cuda", "cuda.thread", "that calls the driver of CUDA"};

thread_local const DeviceThread* current_thread = nullptr;

}  // namespace

DeviceThread::DeviceThread(Driver& driver) : driver_(driver), process_(process_number()) {}

DeviceThread::~DeviceThread() {
  if (process_ != process_number()) return;  // a thread of the parent may have the lock for ever
  {
    const Lock lock(mutex_);
    is_ending_ = true;
    changed_.notify_one();
  }
  // No other thread starts or joins it any more.
  thread_.join();
}

bool DeviceThread::is_current() const noexcept { return current_thread == this; }

Result<void> DeviceThread::make_sure_it_runs() {
  if (is_ending_ && !is_current())
    return Error{ErrorCode::context_closed, "cuda.thread", "the device thread ends"};
  if (thread_.joinable()) return {};
  TENDON_TRY(started, Thread::start(kRole, [this] { serve(); }));
  thread_ = std::move(started);
  return {};
}

Result<void> DeviceThread::post(Job job) {
  TENDON_CHECK(driver_.check_process());
  const Lock lock(mutex_);
  TENDON_CHECK(make_sure_it_runs());
  jobs_.push_back(std::move(job));
  changed_.notify_one();
  return {};
}

Result<void> DeviceThread::watch(WatchedEvent event) {
  TENDON_CHECK(driver_.check_process());
  const Lock lock(mutex_);
  TENDON_CHECK(make_sure_it_runs());
  new_events_.push_back(std::move(event));
  changed_.notify_one();
  return {};
}

DeviceThread::Job DeviceThread::take_job() {
  if (jobs_.empty()) return nullptr;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void DeviceThread::serve() {
  current_thread = this;
  // Otherwise the kernel rounds a sleep of 20 us up by 50.
  (void)prctl(PR_SET_TIMERSLACK, 1000);
  bool is_relaxed = false;
  EventWatch watch(driver_.table());
  Lock lock(mutex_);
  while (!is_ending_ || !jobs_.empty()) {
    watch.add(std::exchange(new_events_, {}));
    Job job = take_job();
    lock.unlock();
    const bool has_work = job || !watch.is_empty();
    if (has_work && !is_relaxed && driver_.initialise()) {
      // Its calls break no capture of the program.
      CaptureMode mode = CaptureMode::relaxed;
      (void)driver_.table().thread_exchange_capture_mode(&mode);
      is_relaxed = true;
    }
    if (job) job();
    job = nullptr;  // its captures may release objects of the driver
    watch.look_if_due();
    lock.lock();
    if (is_ending_ || !jobs_.empty() || !new_events_.empty()) continue;
    if (watch.is_empty()) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_until(mutex_, watch.next_look());
    }
  }
}

Result<DeviceThread*> process_device_thread() {
  // A child of a process that has not used CUDA yet keeps this object: no thread has used it.
  static constinit MadeOnce<DeviceThread> made;
  TENDON_TRY(driver, process_driver());
  return &made.get([driver = driver] { return std::make_unique<DeviceThread>(*driver); });
}

}  // namespace tendon::v0::detail::cuda
