// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/sample_thread.hpp"

#include <exception>
#include <string>
#include <utility>

#include "fabric/topics/sample_delivery.hpp"
#include "fabric/topics/subscriber_core.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.on_sample";

void run(SubscriberCore& subscriber, const std::function<void(Sample)>& on_sample) {
  for (;;) {
    auto sample = subscriber.receive(Deadline::never());
    if (!sample) return;  // it was closed, or its Context
    if (auto delivered = bring_to_host(subscriber, *sample, Deadline::never()); !delivered) {
      subscriber.context()->log(LogLevel::error, kWhere,
                                "sample " + std::to_string(sample->sample.sequence) + " of " +
                                    sample->sample.key + " is lost: " + delivered.error().detail);
      continue;
    }
    try {
      on_sample(std::move(sample->sample));
    } catch (const std::exception& failure) {
      subscriber.context()->log(LogLevel::error, kWhere, failure.what());
    } catch (...) {
      subscriber.context()->log(LogLevel::error, kWhere, "an exception that is no std::exception");
    }
  }
}

}  // namespace

Result<std::unique_ptr<SampleThread>> SampleThread::start(
    std::shared_ptr<SubscriberCore> subscriber) {
  (void)subscriber->become_receiver();
  TENDON_TRY(thread, Thread::start(
                         {.name = "tendon-sample", .where = kWhere, .task = "that calls on_sample"},
                         [subscriber = std::move(subscriber)] {
                           run(*subscriber, subscriber->options().on_sample);
                           subscriber->stop_receiving();
                         }));
  return std::make_unique<SampleThread>(std::move(thread));
}

}  // namespace tendon::v0::detail
