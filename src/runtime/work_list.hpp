// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "runtime/context_clients.hpp"

namespace tendon::v0::detail {

/// The Work of a Context. Any thread runs it, item by item, and each item in one thread at a time.
///
/// Finished Work is removed together with its entry. If another thread adds it again meanwhile,
/// that is a second entry, which stays.
class WorkList {
 public:
  void add(std::shared_ptr<Work> work);
  /// Calls progress() of each. An item that another thread is running now is run once more by that
  /// thread. Returns whether any finished.
  bool run();
  /// True if any item would find input, or was not called yet.
  [[nodiscard]] bool has_input();
  [[nodiscard]] std::vector<std::shared_ptr<Work>> all() const;
  /// Returns all items and empties the list.
  [[nodiscard]] std::vector<std::shared_ptr<Work>> take();

 private:
  struct Entry {
    std::shared_ptr<Work> work;
    bool running = false;
    bool again = false;  // a reason to call it arrived while it ran
    bool called = false;
  };
  bool run(Entry& entry);

  mutable Mutex mutex_;  // also guards the contents of the entries
  std::vector<std::shared_ptr<Entry>> entries_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

}  // namespace tendon::v0::detail
