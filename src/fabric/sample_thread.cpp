// SPDX-License-Identifier: Apache-2.0
#include "fabric/sample_thread.hpp"

#include <exception>
#include <system_error>
#include <tendon/observe/log.hpp>
#include <utility>

#include "fabric/subscriber_core.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.on_sample";

void run(SubscriberCore& subscriber, const std::function<void(Sample)>& on_sample) {
  for (;;) {
    auto sample = subscriber.receive(Deadline::never());
    if (!sample) return;  // it was closed, or its Context
    try {
      on_sample(*std::move(sample));
    } catch (const std::exception& failure) {
      log(LogLevel::error, kWhere, failure.what());
    } catch (...) {
      log(LogLevel::error, kWhere, "an exception that is no std::exception");
    }
  }
}

}  // namespace

Result<std::unique_ptr<SampleThread>> SampleThread::start(
    std::shared_ptr<SubscriberCore> subscriber) {
  (void)subscriber->become_receiver();
  try {
    auto started = std::make_unique<SampleThread>();
    started->context_ = subscriber->context();
    started->thread_ = std::thread([subscriber = std::move(subscriber)] {
      run(*subscriber, subscriber->options().on_sample);
      subscriber->stop_receiving();
    });
    return started;
  } catch (const std::system_error& failure) {
    return Error{ErrorCode::resource_exhausted, kWhere,
                 std::string("no thread for on_sample: ") + failure.what()};
  }
}

void SampleThread::join() {
  if (!thread_.joinable()) return;
  // A forked child does not have it, and a thread does not wait for itself.
  if (context_->forked() || thread_.get_id() == std::this_thread::get_id()) return thread_.detach();
  thread_.join();
}

}  // namespace tendon::v0::detail
