// SPDX-License-Identifier: Apache-2.0
#include "fabric/ports/entities.hpp"

#include <string>

#include "fabric/ports/call_words.hpp"
#include "fabric/ports/subscription_request.hpp"

namespace tendon::v0::detail {
namespace {

// The number of the entity that an opening names.
Result<std::uint32_t> number_in(Purpose purpose, Bytes said) {
  if (purpose == Purpose::fabric) {
    TENDON_TRY(request, read_subscription_request(said));
    return request.entity;
  }
  if (purpose == Purpose::call) {
    TENDON_TRY(opening, read_call_opening(said));
    return opening.entity;
  }
  return Error{ErrorCode::not_supported, "node.open", "nodes have no pipes of that purpose"};
}

}  // namespace

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

void Entities::add(Purpose purpose, std::uint32_t number, std::weak_ptr<EntityDoor> entity) {
  const Lock lock(mutex_);
  doors_[{purpose, number}] = std::move(entity);
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
  for (const Purpose purpose : {Purpose::fabric, Purpose::call}) doors_.erase({purpose, number});
}

Result<std::shared_ptr<MessageSink>> Entities::on_open(std::shared_ptr<Link> link,
                                                       const Descriptor& open, Bytes said) {
  const auto purpose = static_cast<Purpose>(open.schema);
  TENDON_TRY(number, number_in(purpose, said));
  std::shared_ptr<EntityDoor> entity;
  {
    const Lock lock(mutex_);
    const auto found = doors_.find({purpose, number});
    if (found != doors_.end()) entity = found->second.lock();
  }
  if (entity == nullptr) {
    return Error{ErrorCode::unreachable, "node.open",
                 "this context has no " +
                     std::string(purpose == Purpose::fabric ? "publisher" : "responder") +
                     " of number " + std::to_string(number)};
  }
  auto sink = entity->on_open(link, open, said);
  // The last share must not be dropped under the receive lock.
  context_->schedule([entity = std::move(entity)] {});
  return sink;
}

}  // namespace tendon::v0::detail
