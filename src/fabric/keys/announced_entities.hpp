// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tendon/fabric/key_expression.hpp>
#include <utility>

#include "fabric/keys/announcement.hpp"
#include "fabric/keys/publisher_id.hpp"

namespace tendon::v0::detail {

/// The announced entities of one kind, by their ids and by their topics.
///
/// Only the first announcement of an id counts. Another key for the same id, which no honest
/// Context has, waits until that one is withdrawn.
///
/// Owns:    the announcements.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    for each change: looks into trees. each_of(): the entities whose topics begin as the
///          expression does up to its first wildcard.
class AnnouncedEntities {
 public:
  /// Adds `key`, which announces `said`. True: it counts from now on.
  bool add(const std::string& key, const EntityAnnouncement& said);
  /// Removes it once for each add(). True: it counted, and find() has another one of that id, or
  /// none.
  bool remove(const std::string& key, const EntityAnnouncement& said);

  /// Null: the id is not announced.
  [[nodiscard]] const EntityAnnouncement* find(const PublisherId& id) const;
  /// Calls `take` with each whose topic intersects the expression.
  template <class Take>
  void each_of(const KeyExpression& topics, Take take) const {
    const std::string_view text = topics.text();
    const std::string_view front = fixed_front(text);
    for (auto place = topics_.lower_bound({front, PublisherId{}});
         place != topics_.end() && place->first.starts_with(front); ++place) {
      if (front.size() == text.size() && place->first != text) return;  // after the one key
      const EntityAnnouncement& entity = ids_.at(place->second).said;
      if (topics.intersects(entity.topic)) take(entity);
    }
  }
  template <class Take>
  void each(Take take) const {
    for (const auto& [id, entity] : ids_) take(entity.said);
  }
  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }

 private:
  struct Entity {
    EntityAnnouncement said;
    std::uint32_t count = 1;
  };
  /// The common beginning of all keys that an expression matches.
  [[nodiscard]] static std::string_view fixed_front(std::string_view expression);
  void put(const PublisherId& id, const EntityAnnouncement& said, std::uint32_t count);

  std::map<PublisherId, Entity> ids_;
  std::set<std::pair<std::string_view, PublisherId>> topics_;            // texts of ids_
  std::map<std::pair<PublisherId, std::string>, std::uint32_t> others_;  // keys that do not count
};

}  // namespace tendon::v0::detail
