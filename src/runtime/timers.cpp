// SPDX-License-Identifier: Apache-2.0
#include "runtime/timers.hpp"

#include <utility>
#include <vector>

namespace tendon::v0::detail {

std::uint64_t Timers::add(Deadline when, std::weak_ptr<Timed> timed) {
  const Lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  entries_.emplace(id, Entry{when, std::move(timed)});
  return id;
}

void Timers::remove(std::uint64_t id) {
  const Lock lock(mutex_);
  entries_.erase(id);
}

void Timers::clear() {
  const Lock lock(mutex_);
  entries_.clear();
}

Deadline Timers::next() const {
  const Lock lock(mutex_);
  Deadline next = Deadline::never();
  for (const auto& [id, entry] : entries_) next = earlier(next, entry.when);
  return next;
}

void Timers::run() {
  std::vector<std::shared_ptr<Timed>> due;
  {
    const Lock lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (!entry->second.when.has_passed()) {
        ++entry;
        continue;
      }
      if (auto timed = entry->second.timed.lock()) due.push_back(std::move(timed));
      entry = entries_.erase(entry);
    }
  }
  for (const auto& timed : due) timed->on_time();
}

}  // namespace tendon::v0::detail
