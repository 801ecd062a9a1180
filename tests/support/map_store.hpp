// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <tendon/group/rendezvous.hpp>

namespace tendon::test {

/// A store through which the members of one test meet.
class MapStore final : public RendezvousStore {
 public:
  Result<void> set(std::string_view key, std::string_view value, Deadline) override {
    std::lock_guard lock(mutex_);
    values_[std::string(key)] = value;
    changed_.notify_all();
    return {};
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const bool found = changed_.wait_until(lock, deadline.time_point(),
                                           [&] { return values_.contains(std::string(key)); });
    if (!found) return Error{ErrorCode::timeout, "test.store", "no such key"};
    return values_[std::string(key)];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace tendon::test
