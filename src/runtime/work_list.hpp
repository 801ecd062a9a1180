// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "runtime/context_clients.hpp"

namespace tendon::v0::detail {

/// The Work of a Context: called one after another by any thread, each by one thread at a time.
///
/// A Work that says it is finished is forgotten as it was added: adding it again meanwhile, from
/// another thread, is a second entry and counts.
class WorkList {
 public:
  void add(std::shared_ptr<Work> work);
  /// Calls progress() of each; one that another thread is calling right now is called by that one
  /// once more. Returns whether any finished.
  bool run();
  /// Would one of them find something, or was one not called yet?
  [[nodiscard]] bool has_input();
  [[nodiscard]] std::vector<std::shared_ptr<Work>> all() const;
  /// All of them; the list is empty afterwards.
  [[nodiscard]] std::vector<std::shared_ptr<Work>> take();

 private:
  struct Entry {
    std::shared_ptr<Work> work;
    bool running = false;
    bool again = false;  // a reason to call it came while it ran
    bool called = false;
  };
  bool run(Entry& entry);

  mutable Mutex mutex_;  // of all there is in entries, too
  std::vector<std::shared_ptr<Entry>> entries_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

}  // namespace tendon::v0::detail
