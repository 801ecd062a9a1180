// SPDX-License-Identifier: Apache-2.0
#include "fabric/entities.hpp"

#include <string>

#include "channel/open.hpp"
#include "fabric/publisher_core.hpp"

namespace tendon::v0::detail {

Result<std::shared_ptr<Entities>> Entities::create(std::shared_ptr<ContextCore> context,
                                                   Profile profile) {
  auto entities = std::make_shared<Entities>(std::move(context));
  TENDON_CHECK(entities->context_->purposes().add(
      Purpose::fabric, Entrance{.handler = entities, .profile = profile}));
  return entities;
}

Entities::~Entities() {
  if (!context_->forked()) close();
}

void Entities::close() { context_->purposes().remove(Purpose::fabric, this); }

void Entities::add(std::uint32_t number, std::weak_ptr<PublisherCore> publisher) {
  const Lock lock(mutex_);
  publishers_[number] = std::move(publisher);
}

void Entities::remove(std::uint32_t number) {
  const Lock lock(mutex_);
  publishers_.erase(number);
}

Result<std::shared_ptr<MessageSink>> Entities::on_open(std::shared_ptr<Link> link,
                                                       const Descriptor& open, Bytes said) {
  if (static_cast<Purpose>(open.schema) != Purpose::fabric)
    return Error{ErrorCode::not_supported, "node.open", "nodes have no pipes of that purpose"};
  TENDON_TRY(request, read_subscription_request(said));
  TENDON_TRY(window, window_of(open));
  std::shared_ptr<PublisherCore> publisher;
  {
    const Lock lock(mutex_);
    const auto found = publishers_.find(request.entity);
    if (found != publishers_.end()) publisher = found->second.lock();
  }
  if (publisher == nullptr) {
    return Error{ErrorCode::unreachable, "node.open",
                 "this context has no publisher of number " + std::to_string(request.entity)};
  }
  auto sink = publisher->subscribe(link, open.pipe, window, request);
  // The last share may not go under the receive lock.
  context_->schedule([publisher = std::move(publisher)] {});
  return sink;
}

}  // namespace tendon::v0::detail
