// SPDX-License-Identifier: Apache-2.0
#include "fabric/entities.hpp"

#include <string>

#include "channel/open.hpp"
#include "fabric/call_words.hpp"
#include "fabric/publisher_core.hpp"
#include "fabric/responder_core.hpp"

namespace tendon::v0::detail {

Result<std::shared_ptr<Entities>> Entities::create(std::shared_ptr<ContextCore> context,
                                                   Profile profile) {
  auto entities = std::make_shared<Entities>(std::move(context));
  for (const Purpose purpose : {Purpose::fabric, Purpose::call}) {
    TENDON_CHECK(entities->context_->purposes().add(
        purpose, Entrance{.handler = entities, .profile = profile}));
  }
  return entities;
}

Entities::~Entities() {
  if (!context_->forked()) close();
}

void Entities::close() {
  for (const Purpose purpose : {Purpose::fabric, Purpose::call})
    context_->purposes().remove(purpose, this);
}

void Entities::add(std::uint32_t number, std::weak_ptr<PublisherCore> publisher) {
  const Lock lock(mutex_);
  publishers_[number] = std::move(publisher);
}

void Entities::add(std::uint32_t number, std::weak_ptr<ResponderCore> responder) {
  const Lock lock(mutex_);
  responders_[number] = std::move(responder);
}

void Entities::add(std::uint32_t number, std::weak_ptr<const LastReceiver> subscriber) {
  const Lock lock(mutex_);
  receivers_[number] = std::move(subscriber);
}

std::shared_ptr<const LastReceiver> Entities::receiver_of(std::uint32_t subscriber) {
  const Lock lock(mutex_);
  const auto found = receivers_.find(subscriber);
  return found == receivers_.end() ? nullptr : found->second.lock();
}

void Entities::remove(std::uint32_t number) {
  const Lock lock(mutex_);
  receivers_.erase(number);
  publishers_.erase(number);
  responders_.erase(number);
}

Result<std::shared_ptr<MessageSink>> Entities::on_open(std::shared_ptr<Link> link,
                                                       const Descriptor& open, Bytes said) {
  switch (static_cast<Purpose>(open.schema)) {
    case Purpose::fabric:
      return subscribe(link, open, said);
    case Purpose::call:
      return call(link, open, said);
    default:
      return Error{ErrorCode::not_supported, "node.open", "nodes have no pipes of that purpose"};
  }
}

Result<Entities::Sink> Entities::subscribe(const std::shared_ptr<Link>& link,
                                           const Descriptor& open, Bytes said) {
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

Result<Entities::Sink> Entities::call(const std::shared_ptr<Link>& link, const Descriptor& open,
                                      Bytes said) {
  TENDON_TRY(opening, read_call_opening(said));
  TENDON_TRY(answers, window_of(open));
  std::shared_ptr<ResponderCore> responder;
  {
    const Lock lock(mutex_);
    const auto found = responders_.find(opening.entity);
    if (found != responders_.end()) responder = found->second.lock();
  }
  if (responder == nullptr) {
    return Error{ErrorCode::unreachable, "node.open",
                 "this context has no responder of number " + std::to_string(opening.entity)};
  }
  auto sink = responder->accept(link, open.pipe, answers);
  // The last share may not go under the receive lock.
  context_->schedule([responder = std::move(responder)] {});
  return sink;
}

}  // namespace tendon::v0::detail
