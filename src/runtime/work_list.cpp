// SPDX-License-Identifier: Apache-2.0
#include "runtime/work_list.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {

void WorkList::add(std::shared_ptr<Work> work) {
  const Lock lock(mutex_);
  entries_.push_back(std::make_shared<Entry>(Entry{std::move(work)}));
  any_ = true;
}

bool WorkList::run() {
  if (!any_.load(std::memory_order_relaxed)) return false;
  std::vector<std::shared_ptr<Entry>> current;
  {
    const Lock lock(mutex_);
    current = entries_;
  }
  bool finished_any = false;
  for (const auto& entry : current) {
    if (!run(*entry)) continue;
    finished_any = true;
    const Lock lock(mutex_);
    std::erase(entries_, entry);
    any_ = !entries_.empty();
  }
  return finished_any;
}

// Returns true when it has finished.
bool WorkList::run(Entry& entry) {
  {
    const Lock lock(mutex_);
    entry.called = true;
    entry.again = entry.running;
    if (std::exchange(entry.running, true)) return false;
  }
  for (;;) {
    // `running` stays set, so that a finished item is never called again.
    if (!entry.work->progress()) return true;
    const Lock lock(mutex_);
    if (!std::exchange(entry.again, false)) {
      entry.running = false;
      return false;
    }
  }
}

bool WorkList::has_input() {
  // Ordered with ContextCore::add_work(), which looks for sleepers after it has added.
  if (!any_.load()) return false;
  const Lock lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return !entry->called || entry->work->has_input(); });
}

std::vector<std::shared_ptr<Work>> WorkList::all() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Work>> works;
  works.reserve(entries_.size());
  for (const auto& entry : entries_) works.push_back(entry->work);
  return works;
}

std::vector<std::shared_ptr<Work>> WorkList::take() {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Work>> works;
  for (const auto& entry : std::exchange(entries_, {})) works.push_back(entry->work);
  any_ = false;
  return works;
}

}  // namespace tendon::v0::detail
