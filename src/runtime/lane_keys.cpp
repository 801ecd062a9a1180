// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_keys.hpp"

#include <algorithm>

#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {

void LaneKeys::add(const secure::TlsSession& session, const std::shared_ptr<StreamLink>& link) {
  Lane lane{.session_id = session.id, .key = {}, .link = link};
  std::ranges::copy(session.lane_key.bytes(), lane.key.bytes().begin());
  const Lock lock(table_->mutex);
  std::erase_if(table_->lanes, [](const Lane& other) { return other.link.expired(); });
  table_->lanes.push_back(std::move(lane));
}

bool LaneKeys::are_of(std::string_view identity, const StreamLink& link) const {
  const Lock lock(table_->mutex);
  return std::ranges::any_of(table_->lanes, [&](const Lane& lane) {
    return lane.link.lock().get() == &link &&
           identity == std::string(secure::kSessionPrefix) + lane.session_id;
  });
}

secure::FindSession LaneKeys::finder() const {
  return [table = table_](std::string_view id) -> std::optional<secure::Secret<kSharedKeyBytes>> {
    const Lock lock(table->mutex);
    const auto found = std::ranges::find(table->lanes, id, &Lane::session_id);
    if (found == table->lanes.end() || found->link.expired()) return std::nullopt;
    secure::Secret<kSharedKeyBytes> key;
    std::ranges::copy(found->key.bytes(), key.bytes().begin());
    return key;
  };
}

}  // namespace tendon::v0::detail
