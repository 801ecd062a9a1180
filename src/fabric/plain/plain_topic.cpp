// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_topic.hpp"

#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail {

Result<std::shared_ptr<PlainTopic>> PlainTopic::declare(ZenohPort& zenoh,
                                                        std::shared_ptr<PlainOutlet> outlet,
                                                        const KeyExpression& key, Source source) {
  auto topic = std::make_shared<PlainTopic>(std::move(outlet), std::move(source));
  TENDON_TRY(publisher, zenoh.publisher(key, Audience::other_sessions,
                                        [weak = std::weak_ptr(topic)](Matching matching) {
                                          const auto self = weak.lock();
                                          if (self == nullptr) return;
                                          self->matches_ = matching == Matching::somebody;
                                          if (self->source_.on_matching)
                                            self->source_.on_matching();
                                        }));
  const Lock lock(topic->mutex_);
  topic->publisher_ = std::move(publisher);
  return topic;
}

void PlainTopic::offer(const std::shared_ptr<const KeptSample>& sample) {
  {
    const Lock lock(mutex_);
    if (publisher_ == nullptr) return;
    // Its safetensors are larger still: only the first one keeps its memory until the log has its
    // reason.
    if (told_ && sample->message.descriptor.payload_bytes > source_.form.most_bytes) {
      ++counts_.dropped;
      return;
    }
    if (std::exchange(waiting_, sample) != nullptr) {
      ++counts_.dropped;
      return;  // the outlet knows already
    }
  }
  outlet_->add(shared_from_this());
}

void PlainTopic::put_newest() {
  std::shared_ptr<ZenohPublisher> publisher;
  std::shared_ptr<const KeptSample> sample;
  {
    const Lock lock(mutex_);
    sample = std::exchange(waiting_, nullptr);
    publisher = publisher_;
    if (sample == nullptr || publisher == nullptr) return;
    putting_ = true;
  }
  const auto done = put(*publisher, sample);
  publisher = nullptr;  // the last share may wait for a callback
  bool is_first = false;
  {
    const Lock lock(mutex_);
    putting_ = false;
    if (done) {
      ++counts_.put;
    } else {
      ++counts_.dropped;
      is_first = !std::exchange(told_, true);
    }
    idle_.notify_all();
  }
  if (is_first) log(LogLevel::warn, "publisher.plain", done.error().detail);
}

Result<void> PlainTopic::put(ZenohPublisher& publisher,
                             const std::shared_ptr<const KeptSample>& sample) {
  TENDON_TRY(message, to_plain(sample, source_.context, source_.entity, source_.form));
  return publisher.put(std::move(message.payload), std::move(message.attachment), message.encoding);
}

PlainTopic::Counts PlainTopic::counts() const {
  const Lock lock(mutex_);
  return counts_;
}

void PlainTopic::close(Deadline deadline) {
  std::shared_ptr<ZenohPublisher> gone;  // outlives the lock
  const Lock lock(mutex_);
  while ((waiting_ != nullptr || putting_) && publisher_ != nullptr &&
         idle_.wait_until(mutex_, deadline)) {
  }
  if (std::exchange(waiting_, nullptr) != nullptr) ++counts_.dropped;
  gone = std::exchange(publisher_, nullptr);
}

}  // namespace tendon::v0::detail
