// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tendon/control/limits.hpp>
#include <utility>

#include "control/relay/worker_pipe.hpp"

namespace tendon::v0::detail {

/// Short texts that workers leave at the controller for each other, such as the address of rank 0.
///
/// Owns:    at most kMaxStoreKeys of them and kMaxStoreBytes. Each worker has its part, so that one
///          that fills its own hinders nobody. A worker's texts are forgotten when it ends.
/// Threads: one at a time.
/// Errors:  none: texts beyond the limits are not kept.
/// Blocks:  never: an early question is answered when there is a text.
/// Cost:    a lookup.
class StoreBook {
 public:
  using Worker = std::shared_ptr<WorkerPipe>;

  explicit StoreBook(std::uint32_t workers)
      : keys_each_(std::max<std::size_t>(1, kMaxStoreKeys / std::max(workers, 1U))),
        bytes_each_(std::max(kMaxStoreKeyBytes + kMaxStoreValueBytes,
                             kMaxStoreBytes / std::max(workers, 1U))) {}

  void set(const Worker& by, const std::string& key, const std::string& value) {
    if (value.size() > kMaxStoreValueBytes || key.size() > kMaxStoreKeyBytes) return;
    const auto found = values_.find(key);
    Part& part = parts_[by];
    const bool is_own = found != values_.end() && found->second.by == by;
    const std::size_t before = is_own ? key.size() + found->second.text.size() : 0;
    const std::size_t after = key.size() + value.size();
    if (part.keys + (is_own ? 0 : 1) > keys_each_ || part.bytes - before + after > bytes_each_)
      return;
    if (found != values_.end()) forget(found);
    values_[key] = {value, by};
    ++part.keys;
    part.bytes += after;
    const auto asked = waiting_.find(key);
    if (asked == waiting_.end()) return;
    const std::set<Worker> asking = std::move(asked->second);
    waiting_.erase(asked);
    for (const Worker& each : asking) {
      --parts_[each].questions;
      reply(each, key, value);
    }
  }
  void get(const Worker& asking, const std::string& key) {
    if (const auto found = values_.find(key); found != values_.end())
      return reply(asking, key, found->second.text);
    Part& part = parts_[asking];
    if (part.questions >= kMaxStoreQuestions || key.size() > kMaxStoreKeyBytes) return;
    if (waiting_[key].insert(asking).second) ++part.questions;
  }
  /// Forgets the texts of earlier rosters.
  void forget_all_of(std::string_view prefix) {
    for (auto at = values_.begin(); at != values_.end();) {
      const auto next = std::next(at);
      if (at->first.starts_with(prefix)) forget(at);
      at = next;
    }
  }
  /// Forgets a worker's questions and texts.
  void forget(const Worker& gone) {
    for (auto& [key, asking] : waiting_) asking.erase(gone);
    std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
    std::erase_if(values_, [&](const auto& entry) { return entry.second.by == gone; });
    parts_.erase(gone);
  }

 private:
  struct Text {
    std::string text;
    Worker by;
  };
  /// The part of one worker.
  struct Part {
    std::size_t keys = 0;
    std::size_t bytes = 0;
    std::size_t questions = 0;
  };
  void forget(std::map<std::string, Text>::iterator at) {
    Part& part = parts_[at->second.by];
    --part.keys;
    part.bytes -= at->first.size() + at->second.text.size();
    values_.erase(at);
  }
  static void reply(const Worker& asking, const std::string& key, const std::string& value) {
    v1::Word word;
    word.mutable_store_value()->set_key(key);
    word.mutable_store_value()->set_value(value);
    asking->send(word);
  }

  std::size_t keys_each_;
  std::size_t bytes_each_;
  std::map<std::string, Text> values_;
  std::map<std::string, std::set<Worker>> waiting_;
  std::map<Worker, Part> parts_;
};

}  // namespace tendon::v0::detail
