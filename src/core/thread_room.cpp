// SPDX-License-Identifier: Apache-2.0
#include "core/thread_room.hpp"

#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

Result<void> check_room_for_threads(std::size_t count, const ThreadRole& role) {
  // Held while they start: each stays until all of them are there.
  Mutex starting;
  std::vector<Thread> threads;  // joined before the lock is destroyed
  const Lock lock(starting);
  Result<void> room;
  while (room && threads.size() < count) {
    auto started =
        Thread::start(role, [&starting]() TENDON_EXCLUDES(starting) { const Lock held(starting); });
    if (started)
      threads.push_back(*std::move(started));
    else
      room = std::move(started).error();
  }
  return room;
}

}  // namespace tendon::v0::detail
