// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/announced_entities.hpp"

#include <algorithm>
#include <variant>

namespace tendon::v0::detail {
namespace {

PublisherId id_of(const EntityAnnouncement& said) { return {said.context, said.entity}; }

}  // namespace

// "a/**" takes "a" too.
std::string_view AnnouncedEntities::fixed_front(std::string_view expression) {
  const std::size_t wild = expression.find_first_of("*$");
  if (wild == std::string_view::npos) return expression;
  std::string_view front = expression.substr(0, wild);
  if (front.ends_with('/')) front.remove_suffix(1);
  return front;
}

void AnnouncedEntities::put(const PublisherId& id, const EntityAnnouncement& said,
                            std::uint32_t count) {
  const auto place = ids_.emplace(id, Entity{said, count}).first;
  topics_.emplace(place->second.said.topic.text(), id);
}

bool AnnouncedEntities::add(const std::string& key, const EntityAnnouncement& said) {
  const PublisherId id = id_of(said);
  const auto known = ids_.find(id);
  if (known == ids_.end()) {
    put(id, said, 1);
    return true;
  }
  if (known->second.said == said)
    ++known->second.count;
  else
    ++others_[{id, key}];
  return false;
}

bool AnnouncedEntities::remove(const std::string& key, const EntityAnnouncement& said) {
  const PublisherId id = id_of(said);
  if (const auto other = others_.find({id, key}); other != others_.end()) {
    if (--other->second == 0) others_.erase(other);
    return false;
  }
  const auto known = ids_.find(id);
  if (known == ids_.end() || known->second.said != said || --known->second.count > 0) return false;
  topics_.erase({known->second.said.topic.text(), id});
  ids_.erase(known);
  const auto next = others_.lower_bound({id, std::string()});
  if (next == others_.end() || next->first.first != id) return true;
  // It was readable when it arrived.
  if (const auto read = parse_announcement(next->first.second))
    if (const auto* entity = std::get_if<EntityAnnouncement>(&*read))
      put(id, *entity, next->second);
  others_.erase(next);
  return true;
}

const EntityAnnouncement* AnnouncedEntities::find(const PublisherId& id) const {
  const auto known = ids_.find(id);
  return known == ids_.end() ? nullptr : &known->second.said;
}

}  // namespace tendon::v0::detail
