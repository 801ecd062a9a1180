// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/bare_topic.hpp"

namespace tendon::v0::detail {

Result<std::shared_ptr<BareTopic>> BareTopic::declare(ZenohPort& zenoh, const KeyExpression& key,
                                                      PlainForm form,
                                                      std::function<void()> on_matching) {
  auto topic = std::make_shared<BareTopic>(std::move(form), std::move(on_matching));
  TENDON_TRY(publisher, zenoh.publisher(key, Audience::all_sessions,
                                        [weak = std::weak_ptr(topic)](Matching matching) {
                                          const auto self = weak.lock();
                                          if (self == nullptr) return;
                                          self->matches_ = matching == Matching::somebody;
                                          self->on_matching_();
                                        }));
  const Lock lock(topic->mutex_);
  topic->publisher_ = std::move(publisher);
  return topic;
}

Result<Published> BareTopic::publish(const TensorDict& sample) {
  return put(to_bare(sample, form_));
}

Result<Published> BareTopic::publish(Bytes sample) { return put(to_bare(sample, form_)); }

Result<Published> BareTopic::put(Result<PlainMessage> message) {
  TENDON_CHECK(message);
  std::shared_ptr<ZenohPublisher> publisher;  // the last share may wait for a callback
  {
    const Lock lock(mutex_);
    publisher = publisher_;
  }
  if (publisher == nullptr)
    return Error{ErrorCode::pipe_closed, "publisher.publish", "the publisher was closed"};
  TENDON_CHECK(publisher->put(std::move(message->payload), {}, message->encoding));
  Published published;
  published.sequence = ++put_count_;
  published.shown = matches() ? 1 : 0;
  return published;
}

void BareTopic::close() {
  std::shared_ptr<ZenohPublisher> gone;  // outlives the lock
  const Lock lock(mutex_);
  gone = std::exchange(publisher_, nullptr);
}

}  // namespace tendon::v0::detail
