// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tendon/control/limits.hpp>
#include <utility>
#include <vector>

#include "control/worker_pipe.hpp"

namespace tendon::v0::detail {

/// Short texts that workers leave at the controller for each other: where rank 0 listens.
///
/// Owns:    at most kMaxStoreKeys of them.
/// Threads: one at a time.
/// Errors:  none: what is beyond the limits is not kept.
/// Blocks:  never: the reply to a question that comes too early is sent when there is one.
/// Cost:    a lookup.
class StoreBook {
 public:
  void set(const std::string& key, const std::string& value) {
    if (value.size() > kMaxStoreValueBytes || key.size() > kMaxStoreValueBytes) return;
    if (!values_.contains(key) && values_.size() >= kMaxStoreKeys) return;
    values_[key] = value;
    for (const auto& asking : std::exchange(waiting_[key], {})) reply(asking, key, value);
    waiting_.erase(key);
  }
  void get(const std::shared_ptr<WorkerPipe>& asking, const std::string& key) {
    if (const auto found = values_.find(key); found != values_.end()) {
      return reply(asking, key, found->second);
    }
    if (waiting_.size() < kMaxStoreKeys && key.size() <= kMaxStoreValueBytes) {
      waiting_[key].insert(asking);
    }
  }
  /// Texts of rosters before this one.
  void forget_all_of(std::string_view prefix) {
    std::erase_if(values_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }
  /// It asks no more.
  void forget(const std::shared_ptr<WorkerPipe>& gone) {
    for (auto& [key, asking] : waiting_) asking.erase(gone);
  }

 private:
  static void reply(const std::shared_ptr<WorkerPipe>& asking, const std::string& key,
                    const std::string& value) {
    v1::Word word;
    word.mutable_store_value()->set_key(key);
    word.mutable_store_value()->set_value(value);
    asking->send(word);
  }

  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<std::shared_ptr<WorkerPipe>>> waiting_;
};

}  // namespace tendon::v0::detail
