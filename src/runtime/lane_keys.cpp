// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_keys.hpp"

#include <algorithm>

#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {

void LaneKeys::add(const secure::TlsSession& session, const std::shared_ptr<StreamLink>& link) {
  Lane lane{.session_id = session.id, .key = {}, .link = link};
  std::ranges::copy(session.lane_key.bytes(), lane.key.bytes().begin());
  const Lock lock(table_->mutex);
  table_->lanes.push_back(std::move(lane));
}

std::shared_ptr<StreamLink> LaneKeys::link_of(std::string_view identity) const {
  if (!identity.starts_with(secure::kSessionPrefix)) return nullptr;
  const std::string_view id = identity.substr(secure::kSessionPrefix.size());
  const Lock lock(table_->mutex);
  const auto found = std::ranges::find(table_->lanes, id, &Lane::session_id);
  return found == table_->lanes.end() ? nullptr : found->link.lock();
}

LaneKeys::Place::~Place() {
  const Lock lock(table_->mutex);
  std::erase_if(table_->lanes, [&](const Lane& lane) { return lane.session_id == session_id_; });
}

void LaneKeys::Place::replace(const secure::TlsSession& next) {
  const Lock lock(table_->mutex);
  const auto found = std::ranges::find(table_->lanes, session_id_, &Lane::session_id);
  session_id_ = next.id;
  if (found == table_->lanes.end()) return;
  found->session_id = next.id;
  std::ranges::copy(next.lane_key.bytes(), found->key.bytes().begin());
}

std::function<void(const secure::TlsSession&)> LaneKeys::follower(
    const secure::TlsSession& first) const {
  return [place = std::make_shared<Place>(table_, first.id)](const secure::TlsSession& next) {
    place->replace(next);
  };
}

secure::FindSession LaneKeys::finder() const {
  return [table = table_](std::string_view id) -> std::optional<secure::Secret<kSharedKeyBytes>> {
    std::shared_ptr<StreamLink> link;  // may be the last share, so it ends after the lock
    const Lock lock(table->mutex);
    const auto found = std::ranges::find(table->lanes, id, &Lane::session_id);
    if (found == table->lanes.end()) return std::nullopt;
    link = found->link.lock();
    if (link == nullptr || link->ended()) return std::nullopt;
    secure::Secret<kSharedKeyBytes> key;
    std::ranges::copy(found->key.bytes(), key.bytes().begin());
    return key;
  };
}

}  // namespace tendon::v0::detail
